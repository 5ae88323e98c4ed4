"""From a history to what did not hold in it.

Everything is decided from facts; nothing of the product is used. Where the facts leave room, a correct
program is allowed all of it, see `Slack` and the docstrings of the rules.
"""

from __future__ import annotations

from tests.faults.history.dispatch import dispatched
from tests.faults.history.errors import spoken
from tests.faults.history.facts import History, Violation
from tests.faults.history.firing import due_times_of, groundless, late_as_a_rule, lost_or_late
from tests.faults.history.ledger import listed
from tests.faults.history.lifecycle import at_rest, changed_by_nobody, stopped, stored
from tests.faults.history.once import doubled, shared_names, unexplained
from tests.faults.history.pausing import paused
from tests.faults.history.payloads import kept
from tests.faults.history.recovery import recovered
from tests.faults.history.requests import requested
from tests.faults.history.slack import Slack
from tests.faults.history.summary import Summary, summed
from tests.faults.history.timeline import timeline_of
from tests.faults.history.traces import traced
from tests.faults.history.view import View, view_of

_OF_DUE_TIMES = (lost_or_late, late_as_a_rule, traced)
_RULES = (
    groundless,
    doubled,
    shared_names,
    unexplained,
    dispatched,
    recovered,
    paused,
    requested,
    listed,
    kept,
    spoken,
    stopped,
    stored,
    changed_by_nobody,
    at_rest,
)
_SHOWN = 10


def check(history: History, slack: Slack | None = None) -> list[Violation]:
    """Every guarantee that did not hold; empty if all did."""
    return _checked(view_of(history, slack or Slack()))[0]


def assert_holds(history: History, slack: Slack | None = None) -> Summary:
    """What was checked. Raises AssertionError that names guarantee and run and tells each run's story."""
    violations, summary = _checked(view_of(history, slack or Slack()))
    if violations:
        raise AssertionError(told(history, violations, summary))
    return summary


def told(history: History, violations: list[Violation], summary: Summary) -> str:
    """The violations, the first of each guarantee and run with its timeline."""
    lines = [f"{len(violations)} violations", str(summary), ""]
    seen: set[tuple[str | None, str | None]] = set()
    for number, each in enumerate(violations):
        lines.append(f"{each.guarantee} {each.run_id or each.deployment_id or ''}: {each.what}")
        subject = (each.run_id, each.deployment_id)
        if number < _SHOWN and subject not in seen and subject != (None, None):
            lines += [timeline_of(history, each), ""]
        seen.add(subject)
    return "\n".join(lines)


def _checked(view: View) -> tuple[list[Violation], Summary]:
    dues = due_times_of(view)
    violations = [each for rule in _OF_DUE_TIMES for each in rule(view, dues)]
    for rule in _RULES:
        violations += rule(view)
    return sorted(violations, key=_place), summed(view, dues)


def _place(violation: Violation) -> tuple[int, str, str]:
    return int(violation.guarantee[1:]), violation.deployment_id or "", violation.run_id or ""
