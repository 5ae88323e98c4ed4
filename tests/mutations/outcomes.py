"""A pytest plugin that writes what became of each test, and by what kind of exception it failed.

It is loaded by its own name into the tests of a mutated copy, so it imports nothing of this tree.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

FILE_VARIABLE: Final = "MUTATION_OUTCOMES"
"""Names the file that a line is appended to for each phase of a test that counts."""
_NO_SCENE: Final = re.compile(
    r"is not ready after \d|has ended with code \d|so that nothing was shown|the machine is too slow"
)
"""In the first line of an assertion: the situation of the test has not come about, so it has not judged.

A process that does not start shows only that the edit is not sound.
"""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note every call, and whatever else did not pass."""
    report = yield
    if report.when == "call" or not report.passed:
        error = call.excinfo.value if call.excinfo is not None else None
        line = {
            "test": item.nodeid,
            "phase": report.when,
            "outcome": report.outcome,
            "shown": report.when == "call" and error is not None and shows(error),
            "error": "" if error is None else _text(error),
        }
        with Path(os.environ[FILE_VARIABLE]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    return report


def shows(error: BaseException) -> bool:
    """Whether a test that ends so has seen something that was promised not to hold.

    An assertion, a time that is over, or an error that AstraBox was told: the provider's answer. Any
    other error may come of a program that the edit has broken altogether.
    """
    leaves = list(_leaves(error))
    if any(_NO_SCENE.search(_first_line(each)) for each in leaves):
        return False
    return any(isinstance(each, _SHOWING) or _is_told(each) for each in leaves)


_SHOWING: Final = (AssertionError, TimeoutError, pytest.fail.Exception)


def _is_told(error: BaseException) -> bool:
    """By the name, since the seam is the copy's."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    return "SchedulerError" in kinds and "SchedulerConfigurationError" not in kinds


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from _leaves(each)
    else:
        yield error


def _text(error: BaseException) -> str:
    """The first line, of each if there are several."""
    return "; ".join(f"{type(each).__name__}: {_first_line(each)[:200]}" for each in _leaves(error))


def _first_line(error: BaseException) -> str:
    return str(error).partition("\n")[0]
