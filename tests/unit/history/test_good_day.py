"""What a correct program leaves is accused of nothing, and much of it is certain."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from tests.faults.history.check import assert_holds, check
from tests.faults.history.summary import summary_of
from tests.unit.history.story import a_good_day, permitted


def test_a_correct_history_has_no_violations() -> None:
    permitted(a_good_day())


def test_summary_shows_what_was_checked() -> None:
    summary = assert_holds(a_good_day().history())
    assert summary == summary_of(a_good_day().history())
    assert (summary.fired, summary.skipped) == (17, 0)
    assert summary.due_certain == 16
    assert summary.takeovers == 1
    assert summary.phases == {"schedule Succeeded": 17, "manual Succeeded": 1, "replay Succeeded": 1}
    assert "due times  16 certain, 1 uncertain" in str(summary)
    assert "p50 0.20 s" in str(summary)


def test_whatever_is_missing_it_is_told_and_not_stumbled_over() -> None:
    random, whole = Random(7), a_good_day().history()
    for _ in range(20):
        kept: Any = {
            kind: [each for each in getattr(whole, kind) if random.random() > 0.2]
            for kind in ("lives", "commands", "calls", "writes")
        }
        history = replace(whole, **kept)
        assert check(history)
        with pytest.raises(AssertionError):
            assert_holds(history)
