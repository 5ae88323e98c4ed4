"""The table of cases in docs/due-times.md, from the cases that the tests run."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tools.generated.marks import between_marks
from tools.generated.paths import ROOT

PAGE = ROOT / "docs" / "due-times.md"
_CASES = ROOT / "tests" / "cases" / "due_times.json"
_HEAD = "| Case | Expression | Zone | After | Until | Due |\n|---|---|---|---|---|---|\n"


def rendered() -> dict[Path, str]:
    """The page with the table that belongs into it. Raises ValueError when its place is gone."""
    return {PAGE: between_marks(PAGE, _table(json.loads(_CASES.read_text("utf-8"))))}


def _table(cases: Iterable[dict[str, Any]]) -> str:
    rows = (
        f"| {case['id']} | `{case['cron']}` | {case['zone']} | {_shown([case['start']])}"
        f" | {_shown([case['end']])} | {_shown(case['due'])} |\n"
        for case in cases
    )
    return _HEAD + "".join(rows)


def _shown(instants: Iterable[str]) -> str:
    """Times in a cell; a day is named once."""
    days: dict[str, list[str]] = {}
    for instant in instants:
        day, time = instant.removesuffix("Z").split("T")
        days.setdefault(day, []).append(time)
    return "<br>".join(f"{day} {', '.join(times)}" for day, times in days.items())
