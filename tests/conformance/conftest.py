"""The suite's asserts are rewritten as those of a test module are."""

import pytest

pytest.register_assert_rewrite("astrabox.testing.conformance")
