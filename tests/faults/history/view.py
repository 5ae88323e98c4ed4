"""A history with what follows from it, made once and read by every rule."""

from __future__ import annotations

from dataclasses import dataclass

from tests.faults.history.asked import Unasked, unasked_for
from tests.faults.history.facts import Bounds, History, Violation
from tests.faults.history.presence import Attendance
from tests.faults.history.rules import Rules
from tests.faults.history.runs import Run, runs_of
from tests.faults.history.slack import Slack


@dataclass(frozen=True)
class View:
    """What the rules look at."""

    history: History
    slack: Slack
    there: Attendance
    rules: Rules
    """What was stored."""
    unasked: list[Unasked]
    asked: Rules
    """The same without what nobody had asked for: what has to fire."""
    runs: dict[str, Run]

    @property
    def bounds(self) -> Bounds:
        """The settings of the run."""
        return self.history.bounds

    def when(self, moment: float) -> str:
        """A moment for people: seconds since the history began."""
        return f"+{moment - self.history.begun:.1f} s"


def view_of(history: History, slack: Slack) -> View:
    """Derive everything."""
    there, rules = Attendance(history, slack), Rules(history)
    unasked = unasked_for(history, slack, there, rules)
    wrong = [each.version.write for each in unasked if each.version.write is not None]
    asked = Rules(history, without=wrong) if wrong else rules
    return View(history, slack, there, rules, unasked, asked, runs_of(history))


def of_run(guarantee: str, what: str, run: Run) -> Violation:
    """A violation by one run."""
    return Violation(guarantee, what, run_id=run.name, deployment_id=run.deployment or None)
