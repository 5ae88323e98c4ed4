"""The firing loop: one deterministic `step` at a time, and `run`, which only waits and steps."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from astrabox_scheduler_client.errors import ApiError
from astrabox_scheduler_crds.assignment import owner
from astrabox_scheduler_crds.firing import FUTURE_TOLERANCE, Decision, SkipReason, decide
from astrabox_scheduler_crds.lease import LEASE_DURATION_SECONDS
from astrabox_scheduler_crds.presence import Presence
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_operator.attendance import Attendance
from astrabox_scheduler_operator.burst import CONFIRM_RETRY, Burst, Candidate
from astrabox_scheduler_operator.due_queue import DueQueue
from astrabox_scheduler_operator.entry import Entry, Gap
from astrabox_scheduler_operator.index import ScheduleIndex
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.missed import MissedCount
from astrabox_scheduler_operator.overtaken import Overtaken
from astrabox_scheduler_operator.skips import Skips

CHUNK: Final = 2000
SWEEP_EVERY: Final = timedelta(seconds=5)
RECHECK_PRESENCE: Final = timedelta(seconds=1)
RECHECK_OTHERS: Final = timedelta(seconds=LEASE_DURATION_SECONDS / 3)
MAX_WAIT_SECONDS: Final = 5.0
_TICK = timedelta(microseconds=1)
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step did. `more`: something is still due at the same `now`, step again."""

    fired: int = 0
    failed: int = 0
    skipped: int = 0
    more: bool = False
    next_wake: datetime | None = None


@dataclass(slots=True)
class _Plan:
    providers: Presence
    operators: frozenset[str]
    fire: list[Candidate] = field(default_factory=list)
    unattended: list[Entry] = field(default_factory=list)
    overtaken: list[Candidate] = field(default_factory=list)
    skipped: int = 0


class FiringLoop:
    """Decides and fires for all schedules in the index that are this operator's share.

    `tell_gap` is called once per schedule and gap, when the outage is over. `idle` is set while
    no burst is in progress.
    """

    def __init__(
        self,
        *,
        index: ScheduleIndex,
        queue: DueQueue,
        attendance: Attendance,
        burst: Burst,
        skips: Skips,
        missed: MissedCount,
        clock: ServerClock,
        metrics: Metrics,
        window: timedelta,
        tell_gap: Callable[[Entry, Gap], None] = lambda _entry, _gap: None,
    ) -> None:
        self._index = index
        self._queue = queue
        self._attendance = attendance
        self._burst = burst
        self._skips = skips
        self._clock = clock
        self._metrics = metrics
        self._window = window
        self._tell_gap = tell_gap
        self._swept: datetime | None = None
        self._unanswered: set[str] = set()
        self._wake = asyncio.Event()
        self._stopping = False
        self.missed = missed
        self.idle = asyncio.Event()
        self.idle.set()
        self.completed = clock.monotonic()
        """Monotonic seconds at the end of the last step."""
        self.answered: float | None = None
        """Monotonic seconds at which something due was last answered in time, None if it never was."""

    def wake(self) -> None:
        """Something may be due earlier than known so far."""
        self._wake.set()

    def stop(self) -> None:
        """Begin no further step; the one in progress ends by itself."""
        self._stopping = True
        self._wake.set()

    def stuck(self, now: datetime) -> bool:
        """Whether something of this operator's share is due, and nothing was answered since it was."""
        operators = self._attendance.operators()

        def waits(name: str) -> bool:
            entry = self._index.get(name)
            is_due = entry is not None and entry.next_due is not None and entry.next_due <= now
            return is_due and owner(name, operators) == self._attendance.identity

        if not any(map(waits, self._unanswered)):
            self._unanswered.clear()
        return bool(self._unanswered)

    async def run(self, beat: Callable[[], None] = lambda: None) -> None:
        """Step whenever something is due, until `stop`; `beat` is called before each step."""
        while not self._stopping:
            beat()
            self._wake.clear()
            result = await self.step(self._clock.now())
            await asyncio.sleep(0)  # Leases, probes and signals need their turn between two steps
            if result.more or self._stopping:
                continue
            try:
                async with asyncio.timeout(self._pause(result.next_wake)):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def drain(self, now: datetime) -> StepResult:
        """Step until nothing is due at `now` any more; the sums of all steps."""
        fired = failed = skipped = 0
        while True:
            result = await self.step(now)
            fired, failed, skipped = fired + result.fired, failed + result.failed, skipped + result.skipped
            if not result.more:
                return StepResult(fired, failed, skipped, more=False, next_wake=result.next_wake)

    async def step(self, now: datetime) -> StepResult:
        """Look at what is due at `now` (API server time, aware UTC): decide, confirm, create, settle."""
        if not self._attendance.held():
            self.completed = self._clock.monotonic()
            return StepResult(next_wake=now + RECHECK_PRESENCE)
        if self._swept is None or abs(now - self._swept) >= SWEEP_EVERY:
            self._sweep(now)
        plan = _Plan(self._attendance.providers(), self._attendance.operators())
        for name in self._queue.pop_due(now, CHUNK):
            entry = self._index.get(name)
            if entry is not None:
                self._judge(entry, now, plan, final=False)
        if plan.unattended:
            await self._judge_unattended(now, plan)
        fired, failed = await self._fire(plan.fire, now) if plan.fire else (0, 0)
        if plan.overtaken:
            await self._settle_overtaken(now, plan)
        self.completed = self._clock.monotonic()
        earliest = self._queue.earliest()
        due = earliest is not None and earliest <= now
        if not due:
            self.idle.set()
        return StepResult(fired, failed, plan.skipped, more=due, next_wake=earliest)

    def _pause(self, next_wake: datetime | None) -> float:
        if next_wake is None:
            return MAX_WAIT_SECONDS
        return max(0.0, min(MAX_WAIT_SECONDS, (next_wake - self._clock.now()).total_seconds()))

    def _sweep(self, now: datetime) -> None:
        """A lost wake-up costs seconds; an outage that is over is told, and what it showed is acted on."""
        self._swept = now
        self._queue.recover()
        plan = _Plan(self._attendance.providers(), self._attendance.operators())
        attended = bool(plan.providers.live)
        for entry in self._index:
            self._look_back(entry, now, plan)
            if entry.next_due is not None and self._queue.planned(entry.name) is None:
                self._index.requeue(entry)
            if entry.gaps and attended and self._is_over(entry, now):
                self._tell_gaps(entry, now, plan)

    def tell_rest(self) -> None:
        """Tell the gaps that are not over yet: nobody else knows of them."""
        now, plan = self._clock.now(), _Plan(self._attendance.providers(), self._attendance.operators())
        for entry in self._index:
            self._tell_gaps(entry, now, plan)

    def _tell_gaps(self, entry: Entry, now: datetime, plan: _Plan) -> None:
        gaps, entry.gaps = entry.gaps, ()
        ours = owner(entry.name, plan.operators) == self._attendance.identity
        for gap in gaps:
            left = gap if ours else entry.take_back(gap, plan.providers, now - self._window)
            if left is not None:
                self._tell_gap(entry, left)

    def _is_over(self, entry: Entry, now: datetime) -> bool:
        """Whether no due time will soon join those that were skipped; what fails now may yet do so."""
        soon = now if entry.trouble is None else now + self._window
        return entry.next_due is None or entry.next_due > soon

    def _look_back(self, entry: Entry, now: datetime, plan: _Plan) -> None:
        """What was skipped while a process was cut off fires late once that has shown that it was there."""
        horizon, skipped = now - self._window, entry.skipped
        if skipped is None or skipped.unproven_since is None or skipped.last_due_time is None:
            return
        if not horizon < skipped.last_due_time <= now + FUTURE_TOLERANCE:
            return
        if owner(entry.name, plan.operators) != self._attendance.identity:
            return
        if entry.look_back(plan.providers, horizon):
            first, last = entry.owed[0].isoformat(), entry.owed[-1].isoformat()
            fields = {"schedule": entry.name, "due": last, "first": first, "count": len(entry.owed)}
            _LOG.info("a process shows that it was there: skipped due times fire late", extra=fields)
            self._index.requeue(entry)

    def _judge(self, entry: Entry, now: datetime, plan: _Plan, *, final: bool) -> None:
        """Settle what needs no IO, and queue the entry or put it into the plan."""
        while (due := entry.next_due) is not None and due <= now:
            if owner(entry.name, plan.operators) != self._attendance.identity:
                # Its owner reports through the status; when the owner goes, it becomes ours.
                entry.drop_owed()
                self._index.postpone(entry, now + RECHECK_OTHERS)
                return
            decision = decide(
                due,
                now,
                plan.providers,
                self._window,
                settled=self._attendance.steady(),
                disabled_by=entry.disabled_by(due),
            )
            if decision is Decision.FIRE:
                plan.fire.append(Candidate(entry, due, entry.version))
                return
            if decision is Decision.WAIT:
                self._index.postpone(entry, now + RECHECK_PRESENCE)
                return
            if decision is Decision.SKIP_DISABLED:
                plan.overtaken.append(Candidate(entry, due, entry.version))
                return
            if decision is Decision.SKIP_MISSED:
                self._pass_missed(entry, now)
            elif final:
                self._skips.one(entry, due, SkipReason.NO_PROVIDER, now)
                plan.skipped += 1
            else:
                plan.unattended.append(entry)
                return
        self._index.requeue(entry)

    async def _judge_unattended(self, now: datetime, plan: _Plan) -> None:
        """That nobody was there is only believed after a Lease list begun in this step."""
        try:
            await self._attendance.refresh()
        except ApiError as error:
            _LOG.warning("the Leases cannot be read, due times wait: %s", error)
            for entry in plan.unattended:
                self._index.postpone(entry, now + RECHECK_PRESENCE)
            return
        plan.providers, plan.operators = self._attendance.providers(), self._attendance.operators()
        for entry in plan.unattended:
            if self._index.get(entry.name) is entry:
                self._judge(entry, now, plan, final=True)

    async def _settle_overtaken(self, now: datetime, plan: _Plan) -> None:
        def skip(candidate: Candidate) -> None:
            self._skips.one(candidate.entry, candidate.due, SkipReason.DISABLED, now)
            plan.skipped += 1

        await Overtaken(self._index, self._burst.creator, self._clock, skip).settle(plan.overtaken, now)

    def _pass_missed(self, entry: Entry, now: datetime) -> None:
        """Go on behind what is beyond catching up; it is counted later."""
        horizon = now - self._window - _TICK
        if lapsed := [due for due in entry.owed if due <= horizon]:
            self._skips.span(entry, (lapsed[0], lapsed[-1], len(lapsed)), SkipReason.MISSED, now)
        entry.pass_to(horizon)
        self.missed.put(entry.name)

    async def _fire(self, candidates: list[Candidate], now: datetime) -> tuple[int, int]:
        self.idle.clear()
        self._unanswered.update(each.entry.name for each in candidates)
        try:
            result = await self._burst.fire(candidates, now)
        except ApiError as error:
            if error.permanent:
                self._got_on()
            self._metrics.failed(error)
            _LOG.warning("due schedules cannot be confirmed, trying again: %s", error)
            for each in candidates:
                if self._index.get(each.entry.name) is each.entry:
                    self._index.postpone(each.entry, now + CONFIRM_RETRY)
            return 0, len(candidates)
        if result.answered:
            self._got_on()
        return result.fired, result.failed

    def _got_on(self) -> None:
        self._unanswered.clear()
        self.answered = self._clock.monotonic()
