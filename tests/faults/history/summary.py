"""What a history held, so that one in which nothing was checked shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.faults.history.facts import History
from tests.faults.history.firing import Due, due_times_of
from tests.faults.history.runs import Run
from tests.faults.history.slack import Slack
from tests.faults.history.spans import quantile
from tests.faults.history.view import View, view_of


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts and seconds."""

    lives: Mapping[str, int]
    killed: int
    outages: int
    commands: Mapping[str, int]
    """By operation and outcome: done, refused, unanswered."""
    due_certain: int
    """Due times that had to become a run."""
    due_uncertain: int
    """Those that may become one: nobody can know."""
    fired: int
    skipped: int
    cancelled: int
    """Of the fired ones."""
    phases: Mapping[str, int]
    """All runs, by trigger and phase."""
    calls: int
    takeovers: int
    """Changes of a run from one process to another."""
    lateness: Sequence[float]
    """From due time to create, sorted."""

    def late(self, share: float) -> float:
        """The lateness that this share of the scheduled runs did not exceed; 0.0 without any."""
        return quantile(self.lateness, share)

    def __str__(self) -> str:
        rows = [
            ("processes", _told(self.lives) + f", {self.killed} killed; {self.outages} outages"),
            ("commands", _told(self.commands)),
            ("due times", f"{self.due_certain} certain, {self.due_uncertain} uncertain"),
            ("became", f"{self.fired} runs ({self.cancelled} cancelled), {self.skipped} none"),
            ("runs", _told(self.phases)),
            ("calls", f"{self.calls}, {self.takeovers} takeovers"),
            (
                "lateness",
                f"p50 {self.late(0.5):.2f} s, p99 {self.late(0.99):.2f} s, max {self.late(1.0):.2f} s",
            ),
        ]
        return "\n".join(f"{name:<10} {told}" for name, told in rows)


def summary_of(history: History, slack: Slack | None = None) -> Summary:
    """Count."""
    view = view_of(history, slack or Slack())
    return summed(view, due_times_of(view))


def summed(view: View, dues: Sequence[Due]) -> Summary:
    """The same of what is there already."""
    history, runs = view.history, [run for run in view.runs.values() if run.exists]
    fired = [due for due in dues if due.run is not None]
    late = (_lateness(run) for run in runs if run.trigger == "schedule")
    return Summary(
        lives=Counter(life.role for life in history.lives),
        killed=sum((life.code or 0) < 0 for life in history.lives),
        outages=len(history.outages),
        commands=Counter(f"{each.op} {_outcome(each.returned, each.error)}" for each in history.commands),
        due_certain=sum(due.certain for due in dues),
        due_uncertain=sum(not due.certain for due in dues),
        fired=len(fired),
        skipped=len(dues) - len(fired),
        cancelled=sum(due.run is not None and due.run.phase == "Cancelled" for due in dues),
        phases=Counter(f"{run.trigger} {run.phase}" for run in runs),
        calls=len(history.calls),
        takeovers=sum(_takeovers(run) for run in runs),
        lateness=sorted(each for each in late if each is not None),
    )


def _outcome(returned: float | None, error: str | None) -> str:
    if returned is None:
        return "unanswered"
    return "done" if error is None else "refused"


def _lateness(run: Run) -> float | None:
    return run.created.received - run.due if run.created is not None and run.due is not None else None


def _takeovers(run: Run) -> int:
    makers = [(call.host, call.pid) for call in run.calls]
    return sum(one != other for one, other in pairwise(makers))


def counted(counts: Mapping[str, int]) -> str:
    """How many there are of each, by name; empty without any."""
    return ", ".join(f"{counts[name]} {name}" for name in sorted(counts) if counts[name])


def _told(counts: Mapping[str, int]) -> str:
    return counted(counts) or "none"
