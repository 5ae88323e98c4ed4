"""The cases in tests/cases are exact: each is one test."""

import json
from pathlib import Path
from typing import Any

import pytest

from astrabox_scheduler_crds.cron import CronSchedule, InvalidCron
from tests.unit.cron.due import due, first

CASES = Path(__file__).parents[2] / "cases"


def cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in json.loads((CASES / name).read_text("utf-8"))]


@pytest.mark.parametrize("case", cases("due_times.json"))
def test_due_times(case: dict[str, Any]) -> None:
    assert due(case["cron"], case["zone"], case["start"], case["end"]) == case["due"]


@pytest.mark.parametrize("case", cases("syntax.json"))
def test_syntax(case: dict[str, Any]) -> None:
    if case["next"] is None:
        with pytest.raises(InvalidCron):
            CronSchedule.parse(case["cron"], case["zone"])
    else:
        assert first(len(case["next"]), case["cron"], case["zone"], case["start"]) == case["next"]
