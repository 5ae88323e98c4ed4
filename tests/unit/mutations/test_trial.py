"""What counts as caught: a promise that is seen not to hold, and nothing else that fails."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from astrabox.seams.scheduler import SchedulerConfigurationError, SchedulerUnavailable
from tests.mutations import __main__ as command
from tests.mutations.mutation import Mutation
from tests.mutations.outcomes import shows
from tests.mutations.trial import Finding, judged, tried

SCALES = "crds/sample/scales.py"
TESTS = """
import os, subprocess, sys
from pathlib import Path
from sample.scales import weigh

def test_weight():
    assert weigh(2) == 4

def test_weight_in_a_child():
    code = "import sample.scales as it; print(it.weigh(2))"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, cwd="/")
    assert done.stdout.strip() == b"4"

def test_nothing():
    weigh(2)

def test_name():
    assert weigh(2, unit="kg")
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A tree of one module and its tests."""
    files = {
        SCALES: "def weigh(amount: int) -> int:\n    return amount * 2\n",
        "tests/test_scales.py": TESTS,
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["-p", "no:cacheprovider"]\n',
        ".gitignore": "ignored\n",
        "ignored/large": "not copied",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    return tmp_path


def mutation(*tests: str, new: str = "amount * 3", old: str = "amount * 2") -> Mutation:
    return Mutation(
        "m", "doubling", ((SCALES, old, new),), tuple(f"tests/test_scales.py::{t}" for t in tests)
    )


def test_what_fails_in_the_test_and_in_its_child_is_caught(project: Path) -> None:
    """So both have run the copy's code, whatever path the child was given."""
    verdict = tried(mutation("test_weight", "test_weight_in_a_child"), project)
    assert verdict.finding is Finding.CAUGHT
    assert verdict.told.splitlines() == [
        "caught by test_weight, test_weight_in_a_child",
        "    test_weight: AssertionError: assert 6 == 4",
        "    test_weight_in_a_child: AssertionError: assert b'6' == b'4'",
    ]
    assert "amount * 2" in (project / SCALES).read_text("utf-8"), "the source was edited"


def test_what_passes_has_not_caught_it(project: Path) -> None:
    verdict = tried(mutation("test_weight", "test_nothing"), project)
    assert (verdict.finding, verdict.told) == (Finding.NOT_CAUGHT, "NOT CAUGHT by test_nothing")


def test_a_program_that_does_not_begin_is_broken(project: Path) -> None:
    verdict = tried(mutation("test_weight", new="amount * 3\nimport nowhere"), project)
    assert verdict.finding is Finding.BROKEN
    assert "cannot be imported: ModuleNotFoundError: No module named 'nowhere'" in verdict.told


def test_another_error_and_a_test_that_is_not_there_are_broken(project: Path) -> None:
    verdict = tried(mutation("test_name", "test_weight"), project)
    assert verdict.finding is Finding.BROKEN
    assert "BROKEN by test_name\n    test_name: failed in call: TypeError" in verdict.told
    assert "test_absent: it did not run" in tried(mutation("test_absent"), project).told


def test_an_edit_that_does_not_fit_is_broken(project: Path) -> None:
    verdict = tried(mutation("test_weight", old="amount * 5"), project)
    assert verdict.finding is Finding.BROKEN
    assert "occurs 0 times" in verdict.told


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (AssertionError("assert 1 == 2"), True),
        (TimeoutError(), True),
        (pytest.fail.Exception("Timeout (>1.0s) from pytest-timeout."), True),
        (ExceptionGroup("tasks", [ExceptionGroup("more", [AssertionError("no")])]), True),
        (SchedulerUnavailable("The run was not saved."), True),
        (SchedulerConfigurationError("nothing is there"), False),
        (NameError("name 'x' is not defined"), False),
        (KeyError("sessionId"), False),
        (AssertionError("host-1 has ended with code 1:\nthe log"), False),
        (AssertionError("the machine is too slow for this scenario\nassert 3 < 2"), False),
        (AssertionError("no conflict, so that nothing was shown\nassert not 0"), False),
        (AssertionError("not within 60 s: the run has ended\nhost-1 has ended with code 1"), True),
        (ExceptionGroup("tasks", [AssertionError("operator-1 is not ready after 120 s:\nthe log")]), False),
    ],
)
def test_what_shows_that_a_promise_does_not_hold(error: Exception, shown: bool) -> None:
    assert shows(error) is shown


def outcome(
    test: str, outcome: str = "passed", phase: str = "call", *, shown: bool = False
) -> dict[str, Any]:
    return {"test": test, "phase": phase, "outcome": outcome, "shown": shown, "error": "E"}


@pytest.mark.parametrize(
    ("outcomes", "finding"),
    [
        ([outcome("t", "failed", shown=True)], Finding.CAUGHT),
        ([outcome("t[1]"), outcome("t[2]", "failed", shown=True)], Finding.CAUGHT),
        ([outcome("t"), outcome("t", "failed", "teardown")], Finding.NOT_CAUGHT),
        ([outcome("t", "failed", "setup")], Finding.BROKEN),
        ([outcome("t", "skipped", "setup")], Finding.BROKEN),
        ([outcome("t", "failed")], Finding.BROKEN),
        ([outcome("other", "failed", shown=True)], Finding.BROKEN),
    ],
)
def test_how_outcomes_are_judged(outcomes: list[dict[str, Any]], finding: Finding) -> None:
    assert judged(("t",), outcomes, "")[0] is finding


def test_the_command_lists_and_refuses_what_it_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list", "tombstones"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("tombstones: ")
    assert "test_old_lists_undo_no_command" in told
    with pytest.raises(SystemExit):
        command.main(["tombstone"])


def test_the_command_ends_with_1_unless_all_are_caught(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "ROOT", project)
    monkeypatch.setattr(command, "ALL", (mutation("test_weight"),))
    assert command.main([]) == 0
    assert capsys.readouterr().out.splitlines()[0] == "[1/1] m: doubling"
    monkeypatch.setattr(command, "ALL", (mutation("test_nothing"),))
    assert command.main(["m"]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 NOT CAUGHT: m"
