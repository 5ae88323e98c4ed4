"""How long the suite may take: nobody runs one that is slow before each change.

What counts is the time of the tests, and of what they wait for, in the process that had most of them to run.
The building of images does not: it depends on the network, and on what is kept from an earlier run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pytest

from tools.controlplane.errors import ContextError

VARIABLE: Final = "E2E_MINUTES"
DEFAULT_MINUTES: Final = 12.0
"""On two cores that have nothing else to do."""
BUILDING: Final = "seconds of building"
"""Property of a test, in the time of its call."""


@dataclass
class Budget:
    """`seconds` are those that the tests of one process may take."""

    seconds: float
    spent: Counter[str] = field(default_factory=Counter)
    """Thousandths of a second, by the name of the process."""

    def add(self, report: pytest.TestReport) -> None:
        """Count one phase of one test."""
        seconds = report.duration
        if report.when == "call":
            seconds -= sum(float(str(value)) for name, value in report.user_properties if name == BUILDING)
        self.spent[getattr(report, "worker_id", "")] += round(seconds * 1000)

    @property
    def longest(self) -> float:
        """Seconds that the tests have taken."""
        return max(self.spent.values(), default=0) / 1000

    def told(self) -> str:
        """One line, which says what to do if it is too much."""
        figure = f"{self.longest / 60:.1f} of {self.seconds / 60:g} minutes, without the building of images"
        if self.longest <= self.seconds:
            return figure
        return (
            f"{figure}: see what has become slow with --durations=20, or set {VARIABLE} on a slower machine"
        )


def chosen_budget(environ: Mapping[str, str]) -> Budget:
    """What the environment allows. Raises `ContextError` if that is no number of minutes."""
    text = environ.get(VARIABLE, "") or str(DEFAULT_MINUTES)
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not minutes > 0:
        raise ContextError(f"{VARIABLE}={text} is no number of minutes: write one, such as 20.")
    return Budget(minutes * 60)
