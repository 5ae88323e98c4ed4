"""The status that a schedule should have: computed from its entry, with no IO."""

from datetime import datetime

from astrabox_scheduler_crds.metadata import Condition, with_condition
from astrabox_scheduler_crds.schedule import ScheduleStatus
from astrabox_scheduler_operator.entry import READY, Entry, Problem

SUSPENDED = "Suspended"
_GONE = Problem("Deleted", "AstraBox has deleted this schedule; the object goes after 15 minutes")


def status_of(entry: Entry, now: datetime) -> ScheduleStatus:
    """What the API server should hold. Equal to `entry.stored` where there is nothing to write.

    Of fixed size: no list of runs. `now` becomes the transition time of conditions that change.
    """
    generation, stored = entry.metadata.generation, entry.stored
    # Whoever starts from this status is to come upon what is not counted yet, and to count it.
    counted = not entry.passed
    conditions = stored.conditions
    for condition in (_ready(entry, now), _suspended(entry, now)):
        conditions = with_condition(conditions, condition.changed(observed_generation=generation))
    return ScheduleStatus(
        observed_generation=generation,
        last_due_time=(entry.last_due if counted else None) or stored.last_due_time,
        last_run=(entry.last_run if counted else None) or stored.last_run,
        next_due_time=entry.next_due if entry.enabled else None,
        active_since=entry.observed.active_since,
        time_rule=entry.observed.time_rule or None,
        skipped=entry.skipped if counted else stored.skipped,
        conditions=conditions,
    )


def state_of(entry: Entry) -> str:
    """The state that metrics count: one of five. `failing`: a due time is being tried again."""
    if entry.deleted:
        return "deleted"
    if entry.problem is not None:
        return "refused"
    if not entry.enabled:
        return "disabled"
    return "failing" if entry.trouble is not None and entry.failures else "active"


def _ready(entry: Entry, now: datetime) -> Condition:
    problem = _GONE if entry.deleted else entry.problem or (entry.trouble if entry.enabled else None)
    fine = (
        Problem("Scheduled", "")
        if entry.enabled
        else Problem("Disabled", "nothing is due until it is enabled")
    )
    told = problem or fine
    return Condition(
        type=READY,
        status="False" if problem else "True",
        reason=told.reason,
        message=told.message,
        last_transition_time=now,
    )


def _suspended(entry: Entry, now: datetime) -> Condition:
    return Condition(
        type=SUSPENDED,
        status="False" if entry.enabled else "True",
        reason="Enabled" if entry.enabled else "Disabled",
        last_transition_time=now,
    )
