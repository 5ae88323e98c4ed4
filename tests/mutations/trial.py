"""Takes one mechanism out and judges what its tests say."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

from tests.mutations.mutation import Mutation, function_of
from tests.mutations.outcomes import FILE_VARIABLE
from tests.mutations.working_copy import NotSoundError, WorkingCopy, working_copy

_PLUGIN: Final = "mutation_outcomes"
_LIMIT_SECONDS: Final = 3600.0
"""Every test has a limit of its own; this is for what hangs around them."""
_SHOWN_LINES: Final = 12

Outcome = dict[str, Any]


class Finding(StrEnum):
    """What a test, or all tests of a mutation, say."""

    CAUGHT = "caught"
    NOT_CAUGHT = "NOT CAUGHT"
    BROKEN = "BROKEN"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutation: caught if each of its tests has failed as it should."""

    mutation: Mutation
    finding: Finding
    told: str
    seconds: float


def tried(mutation: Mutation, source: Path) -> Verdict:
    """Run the tests of a mutation in a copy of `source`."""
    begun = time.monotonic()
    try:
        with working_copy(source) as copy:
            copy.edit(mutation.edits)
            copy.check_imports(mutation.modules())
            outcomes, said = _run(copy, mutation.tests)
    except NotSoundError as error:
        finding, told = Finding.BROKEN, f"{Finding.BROKEN}: {error}"
    else:
        finding, told = judged(mutation.tests, outcomes, said)
    return Verdict(mutation, finding, told, time.monotonic() - begun)


def judged(tests: Sequence[str], outcomes: Sequence[Outcome], said: str) -> tuple[Finding, str]:
    """The finding of all tests and what to tell of it; `said` is the end of pytest's output."""
    findings = {test: _finding(test, outcomes) for test in tests}
    found = {finding for finding, _ in findings.values()}
    finding = next(each for each in (Finding.BROKEN, Finding.NOT_CAUGHT, Finding.CAUGHT) if each in found)
    reasons = {function_of(test): why for test, (each, why) in findings.items() if each is finding}
    lines = [f"{finding} by {', '.join(reasons)}"]
    lines += [f"    {name}: {why}" for name, why in reasons.items() if why]
    lines += [said] if finding is Finding.BROKEN else []
    return finding, "\n".join(lines)


def _finding(test: str, outcomes: Sequence[Outcome]) -> tuple[Finding, str]:
    """Of one test; a test with parameters has caught it if it did with any of them."""
    mine = [each for each in outcomes if each["test"] == test or each["test"].startswith(f"{test}[")]
    for each in mine:
        if each["shown"]:
            return Finding.CAUGHT, each["error"]
    for each in mine:
        if each["outcome"] != "passed" and each["phase"] != "teardown":
            return Finding.BROKEN, f"{each['outcome']} in {each['phase']}: {each['error']}"
    return (Finding.NOT_CAUGHT, "") if mine else (Finding.BROKEN, "it did not run")


def _run(copy: WorkingCopy, tests: Sequence[str]) -> tuple[list[Outcome], str]:
    """What became of the tests, and the last lines that pytest wrote."""
    written = copy.folder / "outcomes.jsonl"
    command = [str(copy.python), "-m", "pytest", "-q", "-p", _PLUGIN, *tests]
    environment = copy.environment() | {FILE_VARIABLE: str(written)}
    try:
        done = subprocess.run(
            command,
            cwd=copy.tree,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise NotSoundError(f"pytest has not ended within {_LIMIT_SECONDS:g} s") from error
    lines = written.read_text("utf-8").splitlines() if written.exists() else []
    said = "\n".join(f"    | {line}" for line in done.stdout.splitlines()[-_SHOWN_LINES:])
    return [json.loads(line) for line in lines], said
