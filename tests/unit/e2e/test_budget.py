"""The suite fails when it has become slow, and says by how much."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Literal

import pytest

from e2e.budget import BUILDING, Budget, chosen_budget
from tools.controlplane.errors import ContextError
from tools.generated.paths import ROOT

TESTS = """
import time

def test_waits():
    time.sleep(0.4)

def test_waits_again():
    time.sleep(0.4)
"""


def report(
    seconds: float,
    when: Literal["setup", "call", "teardown"] = "call",
    worker: str = "",
    building: float = 0.0,
) -> pytest.TestReport:
    properties = [("another", "x"), (BUILDING, building)]
    made = pytest.TestReport(
        "a",
        ("a", 1, "a"),
        {},
        "passed",
        None,
        when,
        duration=seconds,
        user_properties=properties,
    )
    if worker:
        made.worker_id = worker  # type: ignore[attr-defined]
    return made


def test_building_is_not_counted() -> None:
    budget = Budget(60.0)
    for each in (
        report(10, "setup", building=300),
        report(320, building=300),
        report(5, "teardown", building=300),
    ):
        budget.add(each)
    assert budget.longest == 35.0
    assert budget.told() == "0.6 of 1 minutes, without the building of images"


def test_of_processes_side_by_side_the_longest_counts() -> None:
    budget = Budget(60.0)
    for worker, seconds in (("gw0", 40.0), ("gw1", 30.0), ("gw0", 21.0), ("gw1", 29.0)):
        budget.add(report(seconds, worker=worker))
    assert budget.longest == 61.0
    assert budget.told().endswith(
        "see what has become slow with --durations=20, or set E2E_MINUTES on a slower machine"
    )


def test_what_is_allowed() -> None:
    assert chosen_budget({}).seconds == chosen_budget({"E2E_MINUTES": ""}).seconds == 720.0
    assert chosen_budget({"E2E_MINUTES": "20"}).seconds == 1200.0
    for text in ("soon", "0", "-1", "nan"):
        with pytest.raises(ContextError, match=f"E2E_MINUTES={text} is no number of minutes"):
            chosen_budget({"E2E_MINUTES": text})


@pytest.mark.parametrize("processes", ["0", "2"])
@pytest.mark.parametrize(("minutes", "code"), [("0.005", 1), ("1", 0)])
def test_a_session_that_is_too_slow_fails(tmp_path: Path, processes: str, minutes: str, code: int) -> None:
    (tmp_path / "conftest.py").write_text("from e2e.conftest import pytest_configure\n")
    (tmp_path / "test_slow.py").write_text(TESTS)
    options = ["-q", "-p", "no:cacheprovider", "--numprocesses", processes, "."]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "E2E_MINUTES": minutes},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in done.stdout
    assert done.returncode == code, done.stdout
    assert f"of {minutes} minutes, without the building of images" in done.stdout
