"""One schedule as the operator knows it: what it asks for, and how far its due times are settled."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from astrabox_scheduler_client.schedules import Version
from astrabox_scheduler_crds.cron import CronError
from astrabox_scheduler_crds.deletion import bears_tombstone
from astrabox_scheduler_crds.firing import (
    FUTURE_TOLERANCE,
    Observed,
    SkipReason,
    just_before,
    latest_due,
    owed_after_all,
)
from astrabox_scheduler_crds.metadata import ObjectMeta, condition_of
from astrabox_scheduler_crds.names import scheduled_run_name
from astrabox_scheduler_crds.presence import Presence
from astrabox_scheduler_crds.schedule import ScheduleStatus, Skipped
from astrabox_scheduler_crds.timeline import Timeline

MAX_GAPS: Final = 8
"""So many are kept apart until they can be told; whatever alternates for longer is told in one."""
READY: Final = "Ready"
"""Type of the condition that says whether it can fire."""
OF_A_DUE_TIME: Final = frozenset({"QuotaExceeded", "CreateForbidden", "CreateRefused"})
"""Reasons of the latest attempt to create a run: it stands in the status until another succeeds."""
_TICK: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a schedule does not fire: a reason for machines and a sentence for people."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Due times skipped in one outage: one after the other, and for one reason."""

    first: datetime
    last: datetime
    count: int
    reason: SkipReason


@dataclass(frozen=True, slots=True)
class Passed:
    """Due times in (after, horizon] that were too old to fire, and are not counted yet."""

    due_times: Timeline
    after: datetime
    horizon: datetime


@dataclass(slots=True, eq=False)
class Entry:
    """A schedule in the index. Owned by the firing loop's event loop; all datetimes aware UTC.

    Every due time at or before `cursor` is settled: it has its run, was skipped, or was never due. Of the
    skipped ones those in `owed` are to fire all the same, and come first; `looked_back` are those that
    have been owed. `next_due` is the first of `owed`, or else the first one behind the cursor.
    """

    metadata: ObjectMeta
    deployment_id: str
    enabled: bool
    payload: str | None  # None: too large to keep, it is read when it is needed
    timeline: Timeline | None  # None: it has a problem
    problem: Problem | None  # of the object itself
    observed: Observed
    stored: ScheduleStatus  # the status as the API server has it, as far as we know
    cursor: datetime
    readable: bool = True
    next_due: datetime | None = None
    last_due: datetime | None = None
    last_run: str | None = None
    skipped: Skipped | None = None
    trouble: Problem | None = None  # of the latest attempt to create a run
    failures: int = 0
    unconfirmed: int = 0  # confirmations one after the other that failed
    troubled: bool = False  # a try has failed, and nothing has fired since
    gaps: tuple[Gap, ...] = ()  # not told yet
    passed: tuple[Passed, ...] = ()  # ascending
    owed: tuple[datetime, ...] = ()
    looked_back: frozenset[datetime] = frozenset()
    lapsed: datetime | None = None  # due times up to here were too old at the latest look back

    @property
    def name(self) -> str:
        """The object's name, and the key of its runs."""
        return self.metadata.name

    @property
    def version(self) -> Version:
        """The uid and generation of the spec that this entry was made from."""
        return self.metadata.uid or "", self.metadata.generation or 0

    @property
    def deleted(self) -> bool:
        """Whether AstraBox has deleted it, and only its tombstone is left."""
        return bears_tombstone(self.metadata.labels, enabled=self.enabled, payload=self.payload)

    def plan(self) -> None:
        """Compute `next_due`. A calculus that does not advance becomes a problem of this schedule alone."""
        self.next_due = None
        if self.timeline is None or self.problem is not None:
            return
        if self.owed:
            self.next_due = self.owed[0]
            return
        try:
            due = self.timeline.next_after(self.cursor)
        except CronError as error:
            if self.enabled:
                self.problem = Problem("NoDueTime", str(error))
            return
        if due <= self.cursor:
            self.problem = Problem("CronNotAdvancing", f"the due time after {self.cursor} came out as {due}")
            return
        self.next_due = due

    def adopt(self, status: ScheduleStatus, now: datetime) -> bool:
        """Take in how far the stored status says the due times are settled; True if the cursor moved."""
        horizon = now + FUTURE_TOLERANCE
        if _later(status.last_due_time, self.last_due, horizon):
            self.last_due, self.last_run = status.last_due_time, status.last_run
            self.troubled = False
        told = status.skipped if _believable(status.skipped, horizon) else None
        if told is not None and (self.skipped is None or _newer(told, self.skipped)):
            self.skipped = told
        skipped_to = self.skipped.last_due_time if self.skipped is not None else None
        reached = [each for each in (self.last_due, skipped_to) if _later(each, self.cursor, horizon)]
        if reached:
            self.cursor = max(each for each in reached if each is not None)
            self.trouble, self.failures = None, 0  # another operator got on with what we failed at
        self._share_trouble(status)
        return bool(reached)

    def _share_trouble(self, status: ScheduleStatus) -> None:
        """What another operator could not create is in trouble whoever tells of it, until one is created."""
        ready = condition_of(status.conditions, READY)
        if self.trouble is not None or ready is None or status.last_due_time != self.last_due:
            return
        if ready.reason in OF_A_DUE_TIME:
            self.trouble = Problem(ready.reason, ready.message)

    def look_back(self, providers: Presence, horizon: datetime) -> bool:
        """Owe what was skipped for want of a process and was attended after all; True if there is any.

        Each is owed once; those that are disabled meanwhile are not.
        """
        if self.timeline is None:
            return False
        found = owed_after_all(self.timeline, self.skipped, providers, horizon)
        owed = [due for due in found if due not in self.looked_back and self.disabled_by(due) is None]
        if not owed:
            return False
        self.lapsed = horizon
        self.owed = tuple(sorted({*self.owed, *owed}))
        # What is too old is not found again: to remember it would cost memory for ever.
        self.looked_back = frozenset(due for due in self.looked_back if due > horizon) | set(self.owed)
        self.gaps = tuple(left for gap in self.gaps if (left := self._left_of(gap, owed)) is not None)
        self.plan()
        return True

    def take_back(self, gap: Gap, providers: Presence, horizon: datetime) -> Gap | None:
        """What is left of a gap for its former owner: of what a process has shown its heir makes runs."""
        if self.timeline is None or gap.reason is not SkipReason.NO_PROVIDER:
            return gap
        between = self.timeline.between(max(gap.first - _TICK, horizon), gap.last)
        made = [due for due in between if providers.proves(due) and self.disabled_by(due) is None]
        return self._left_of(gap, made)

    def drop_owed(self) -> None:
        """Leave what is owed to the schedule's owner, or to another look back."""
        self.looked_back -= set(self.owed)
        self.owed = ()
        self.plan()

    def hold_since(self, since: datetime) -> None:
        """The present rule holds since then."""
        self.observed = replace(self.observed, active_since=since)
        if self.timeline is not None:
            self.timeline = self.timeline.beginning(since)
        self.cursor = max(self.cursor, self.timeline.start if self.timeline is not None else since)
        self.plan()

    def disabled_by(self, due: datetime) -> datetime | None:
        """When the rule of `due` was disabled, at the latest; None if it was not."""
        return self.timeline.disabled_by(due) if self.timeline is not None else None

    def learn_fired(self, due: datetime) -> None:
        """`due`, settled already, turns out to have its run: it says nothing of what fails since."""
        if self.last_due is None or due > self.last_due:
            self.last_due, self.last_run = due, scheduled_run_name(self.name, due)

    def settle_fired(self, due: datetime) -> None:
        """`due` has its run."""
        self.learn_fired(due)
        self.trouble, self.failures, self.troubled = None, 0, False
        self._settle(due)

    def settle_skipped(self, first: datetime, last: datetime, count: int, reason: SkipReason) -> bool:
        """The `count` due times from `first` to `last` get no run; True if a gap begins with them."""
        before, counted = self.skipped or Skipped(), 0 if last in self.looked_back else count
        since = first if reason is SkipReason.NO_PROVIDER else None
        if before.unproven_since is not None and not _later(self.last_due, before.last_due_time, last):
            since = before.unproven_since  # nothing has fired since
        if before.last_due_time is not None and before.last_due_time > last:
            self.skipped = before.changed(count=before.count + counted)
        else:
            self.skipped = Skipped(
                count=before.count + counted, last_due_time=last, reason=reason.value, unproven_since=since
            )
        gap = self.gaps[-1] if self.gaps else None
        begins = gap is None or (self._is_over(gap, reason) and len(self.gaps) < MAX_GAPS)
        if gap is None or begins:
            self.gaps += (Gap(first, last, count, reason),)
        else:
            # What was passed over is counted later than what came after it.
            begin, end = min(gap.first, first), max(gap.last, last)
            self.gaps = (*self.gaps[:-1], Gap(begin, end, gap.count + count, reason))
        self.failures = 0
        self._settle(last)
        return begins

    def pass_to(self, horizon: datetime) -> None:
        """Every due time up to `horizon` is settled; those that were missed are counted later."""
        self.failures = 0
        if self.timeline is not None and self.cursor < horizon:
            before = self.passed[-1] if self.passed else None
            if before is not None and (before.due_times, before.horizon) == (self.timeline, self.cursor):
                # One that passes on and on while nothing can be counted keeps one span.
                self.passed = (*self.passed[:-1], replace(before, horizon=horizon))
            else:
                self.passed += (Passed(self.timeline, self.cursor, horizon),)
        self._settle(horizon)

    def counted_to(self, horizon: datetime) -> None:
        """What was passed over up to `horizon` is counted."""
        left = (each for each in self.passed if each.horizon > horizon)
        self.passed = tuple(replace(each, after=max(each.after, horizon)) for each in left)

    def _is_over(self, gap: Gap, reason: SkipReason) -> bool:
        """Whether a skip for this reason is in another gap: the reason is another, or one has fired since."""
        return gap.reason != reason or (self.last_due is not None and self.last_due > gap.last)

    def _left_of(self, gap: Gap, owed: Sequence[datetime]) -> Gap | None:
        """What is still skipped of it; None if nothing is. `owed`: ascending, what is no longer."""
        gone = {due for due in owed if gap.first <= due <= gap.last}
        if gap.reason is not SkipReason.NO_PROVIDER or not gone:
            return gap
        if len(gone) >= gap.count:
            return None
        assert self.timeline is not None
        begin = min(gone)
        later = [due for due in self.timeline.between(begin, gap.last) if due not in gone]
        if gap.first == begin:
            return replace(gap, first=later[0], count=gap.count - len(gone)) if later else None
        last = later[-1] if later else latest_due(self.timeline, gap.first, begin - _TICK)
        return replace(gap, last=last, count=gap.count - len(gone))

    def _settle(self, due: datetime) -> None:
        self.cursor = max(self.cursor, due)
        if self.owed:
            self.owed = tuple(each for each in self.owed if each > due)
            if not self.owed:
                self._conclude()
        self.plan()

    def _conclude(self) -> None:
        """What was owed is settled: nobody is to look back at it, nor at what was too old by then."""
        skipped = self.skipped
        if skipped is None or skipped.unproven_since is None or skipped.last_due_time is None:
            return
        assert self.timeline is not None
        assert self.lapsed is not None
        begin = just_before(skipped.unproven_since, self.lapsed)
        found = self.timeline.between(begin, skipped.last_due_time)
        left = next((due for due in found if due not in self.looked_back), None)
        self.skipped = skipped.changed(unproven_since=left)


def _believable(stored: Skipped | None, horizon: datetime) -> bool:
    """Whether it tells of the past alone: what lies ahead was written by a hand, or a clock was set."""
    return stored is not None and (stored.last_due_time is None or stored.last_due_time <= horizon)


def _newer(stored: Skipped, known: Skipped) -> bool:
    """Whether the status tells of more that was skipped, or that less of it is in doubt."""
    if stored.count != known.count or known.unproven_since is None:
        return stored.count > known.count
    return stored.unproven_since is None or stored.unproven_since > known.unproven_since


def _later(instant: datetime | None, than: datetime | None, horizon: datetime) -> bool:
    return instant is not None and instant <= horizon and (than is None or instant > than)
