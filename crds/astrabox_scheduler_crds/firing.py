"""Which due times fire: the decisions, given everything they depend on."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from itertools import islice
from typing import Protocol

from astrabox_scheduler_crds.presence import Presence
from astrabox_scheduler_crds.schedule import DeploymentSchedule, Skipped

CATCH_UP_WINDOW = timedelta(minutes=10)
MAX_CATCH_UP_WINDOW = timedelta(hours=1)
"""The longest that can be set: for so long a schedule's earlier rules are kept with it."""
PRESENCE_SETTLE = timedelta(seconds=20)
"""How long after a due time a provider that was there at it may still come to sight."""
DISABLE_SETTLE = timedelta(seconds=15)
"""How long after a disable another operator's create may still come: one confirmed before, and its answer."""
MAX_COUNTED_SKIPS = 1000
FUTURE_TOLERANCE = timedelta(minutes=1)
"""A time in a status that lies further ahead is not believed."""
CONFIRM_MAX_AGE_SECONDS = 2.0
"""A scheduled run rests on a read of its schedule that began at most this long before the create."""
START_MAX_AGE_SECONDS = 3.5
"""A scheduled run starts at most this long after that read began, or its schedule is read again.

The age is the provider's time less what the operator wrote, and either may have been started a moment
ago, with the API server's time known to the second of one `Date`. The operator therefore writes the
earliest time at which its read can have begun, so that only the provider's time counts as wrong, which is
a second late at most. 3.5 + 1 = 4.5 s; half a second is left, of the `pause_visibility_seconds` of 5 that
the provider declares, for the way of the answer that set its clock.
"""


class SkipReason(StrEnum):
    """Why a due time of an enabled schedule did not become a run."""

    NO_PROVIDER = "NoAstraBoxProcess"
    MISSED = "OutsideCatchUpWindow"
    NAME_TAKEN = "NameTaken"
    DISABLED = "ScheduleDisabled"


class Decision(Enum):
    """What to do about one due time now."""

    WAIT = "wait"
    FIRE = "fire"
    SKIP_MISSED = "skip-missed"
    SKIP_NO_PROVIDER = "skip-no-provider"
    SKIP_DISABLED = "skip-disabled"


def decide(
    due: datetime,
    now: datetime,
    providers: Presence,
    window: timedelta = CATCH_UP_WINDOW,
    *,
    settled: bool = True,
    disabled_by: datetime | None = None,
) -> Decision:
    """Decide one due time of a schedule's timeline. All datetimes aware.

    Never before it is due; late within the window if some provider was there at the due time; not
    at all where none was (they are skipped, not made up for) or where it is older than the window.
    `settled`: the Leases have been listed without a gap for PRESENCE_SETTLE. After an outage of the
    API server providers need a moment to renew, and until then their absence proves nothing.
    `disabled_by`: the schedule was disabled after this due time, at that time at the latest. It does
    not fire any more; that it has not fired before is known once no create can be under way.
    """
    age = now - due
    if age < timedelta(0):
        return Decision.WAIT
    if age > window:
        return Decision.SKIP_MISSED
    if disabled_by is not None:
        return Decision.SKIP_DISABLED if now - disabled_by > DISABLE_SETTLE else Decision.WAIT
    if providers.covers(due):
        return Decision.FIRE
    # A provider that started just before the due time may not be seen yet.
    return Decision.SKIP_NO_PROVIDER if settled and age > PRESENCE_SETTLE else Decision.WAIT


@dataclass(frozen=True, slots=True)
class Observed:
    """A schedule's time rule as it was last seen, and since when it holds."""

    time_rule: str
    active_since: datetime
    declared: datetime | None  # spec.activeSince at that time


def observed_from_status(schedule: DeploymentSchedule) -> Observed | None:
    """What the status says was seen last; None for a schedule that no operator has seen."""
    status = schedule.status
    if status.time_rule is None or status.active_since is None:
        return None
    return Observed(status.time_rule, status.active_since, None)


def observe_rule(
    schedule: DeploymentSchedule, last: Observed | None, now: datetime, rule: str | None = None
) -> Observed:
    """Since when the schedule's present time rule holds: only later due times are due.

    A changed rule holds from the time its writer declares (`spec.activeSince`), from the creation
    if it was never seen before, and from `now` if it was edited by hand: nothing in the past
    becomes due by an edit. `rule`: the fingerprint to go by, if it is not that of the spec.
    """
    spec = schedule.spec
    rule, declared = rule or spec.time_rule, spec.active_since
    if last is not None and last.active_since > now + FUTURE_TOLERANCE:
        last = None  # a hand wrote the status, or a clock was set: begin again from what the spec says
    if last is not None and last.time_rule == rule:
        return last
    created = schedule.metadata.creation_timestamp or now
    if last is None:
        since = declared or created
    elif declared is not None and declared > last.active_since:
        since = declared
    else:
        since = now
    return Observed(rule, since, declared)


class DueTimes(Protocol):
    """`CronSchedule` or `Timeline`."""

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The due times with start < due time <= end, ascending."""


@dataclass(frozen=True, slots=True)
class Missed:
    """Due times that are beyond catching up: how many (counted up to 1000), the first and the latest."""

    count: int
    first: datetime
    last: datetime


def missed_before(
    due_times: DueTimes, after: datetime, horizon: datetime, fired: frozenset[datetime] = frozenset()
) -> Missed | None:
    """The due times in (after, horizon] but those that have `fired`; work grows with these only."""
    if horizon <= after:
        return None
    left = (due for due in due_times.between(after, horizon) if due not in fired)
    counted = list(islice(left, MAX_COUNTED_SKIPS))
    if not counted:
        return None
    last = counted[-1]
    if len(counted) == MAX_COUNTED_SKIPS:
        last = latest_due(due_times, last, horizon)
        while last in fired:
            last = latest_due(due_times, counted[-1], last - timedelta(minutes=1))
    return Missed(len(counted), counted[0], last)


def owed_after_all(
    due_times: DueTimes, skipped: Skipped | None, providers: Presence, horizon: datetime
) -> tuple[datetime, ...]:
    """Due times later than `horizon` that were skipped for want of a process, and one was there after all.

    A process that was cut off alone goes on under the Lease that it had, whose interval then covers the due
    times of the cut.
    """
    if skipped is None or skipped.unproven_since is None or skipped.last_due_time is None:
        return ()
    if skipped.last_due_time <= horizon:
        return ()
    after = just_before(skipped.unproven_since, horizon)
    if not providers.touches(after, skipped.last_due_time):
        return ()  # so it is during the outage: nothing is computed for each schedule, again and again
    return tuple(due for due in due_times.between(after, skipped.last_due_time) if providers.proves(due))


def just_before(instant: datetime, floor: datetime) -> datetime:
    """The latest time before `instant`, none before `floor`: what a hand wrote may be the first there is."""
    return floor if instant <= floor else instant - timedelta(microseconds=1)


def latest_due(due_times: DueTimes, due: datetime, horizon: datetime) -> datetime:
    """The latest due time up to `horizon`, given an earlier or equal one: found by halving the span."""
    empty_from = horizon
    while empty_from - due >= timedelta(minutes=1):
        middle = due + (empty_from - due) / 2
        found = next(iter(due_times.between(middle, empty_from)), None)
        if found is None:
            empty_from = middle
        else:
            due = found
    return due
