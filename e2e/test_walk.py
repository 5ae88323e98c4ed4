"""The whole main job with real pods: from the first apply to the delete."""

from __future__ import annotations

import pytest

from e2e.release import Release

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def test_two_hosts_take_commands(release: Release) -> None:
    for host in release.hosts:
        assert host.list_runs("nothing") == []
