"""Fires a batch of due times: confirm, create, settle; every create rests on a fresh confirmation."""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from astrabox_scheduler_client.confirm import Confirmed
from astrabox_scheduler_client.errors import ApiError, Forbidden, NotFound, QuotaExceeded
from astrabox_scheduler_client.schedules import Version
from astrabox_scheduler_crds.firing import CONFIRM_MAX_AGE_SECONDS, SkipReason
from astrabox_scheduler_crds.metadata import bounded, utc_text
from astrabox_scheduler_crds.names import scheduled_run_name
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_operator.confirm_choice import ConfirmChoice, Confirms
from astrabox_scheduler_operator.entry import Entry, Problem
from astrabox_scheduler_operator.index import ScheduleIndex
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.preflight import remedy
from astrabox_scheduler_operator.run_creator import Created, NotDue, RunCreator

FIRST_RETRY: Final = timedelta(seconds=5)
MAX_RETRY: Final = timedelta(seconds=30)
CONFIRM_RETRY: Final = timedelta(seconds=1)
_HARDLY: Final = 8  # of nine calls one is in time
_LOG = logging.getLogger(__name__)


class ScheduleReads(Protocol):
    """A consistent read of one schedule."""

    async def get(self, name: str) -> DeploymentSchedule:
        """Read it. Raises ApiError."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A due time that is to fire, of the spec that it was decided on."""

    entry: Entry
    due: datetime
    version: Version


@dataclass(slots=True)
class BurstResult:
    """What became of a batch begun at `now`, and at `begun` monotonic seconds.

    `left` were not reached in its time; `late` were, and no answer came in time. `answered`: the API
    server said something about one of them in time, be it a refusal for good, which every other operator
    would hear as well.
    """

    now: datetime
    begun: float
    fired: int = 0
    failed: int = 0
    left: int = 0
    late: int = 0
    answered: bool = False


class Burst:
    """Fires candidates with at most `concurrency` creates at a time.

    An API server that is overloaded answers many calls all too late, and few in time: while hardly any fires,
    half as many are begun at a time, and twice as many when that is over. If one at a time does not help
    either, that was not the reason, and all are begun again.
    """

    def __init__(
        self,
        *,
        index: ScheduleIndex,
        confirm: Confirms,
        schedules: ScheduleReads,
        creator: RunCreator,
        clock: ServerClock,
        metrics: Metrics,
        concurrency: int,
    ) -> None:
        self._index = index
        self._choice = ConfirmChoice(confirm, clock)
        self._schedules = schedules
        self.creator = creator
        self._clock = clock
        self._metrics = metrics
        self._concurrency = concurrency
        self._at_once = concurrency
        self._terminating = False

    async def fire(self, candidates: Sequence[Candidate], now: datetime) -> BurstResult:
        """Fire what can be within the age of a confirmation. Raises ApiError if none can be had."""
        result = BurstResult(now, self._clock.monotonic())
        self._metrics.confirm_reads.inc()
        shared = await self._choice.shared([each.entry.name for each in candidates], len(self._index))
        # What has failed before comes last: calls that hang for it must not keep the others from theirs.
        pending = deque(sorted(candidates, key=lambda each: each.entry.troubled))

        async def work() -> None:
            while pending and self._may_begin(shared, result):
                candidate = pending.popleft()
                confirmed = shared or await self._confirmed(candidate, result)
                if confirmed is not None:
                    await self._one(candidate, confirmed, result)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._at_once, len(pending))):
                group.create_task(work())
        self._adapt(result)
        result.left = len(pending)
        for each in pending:
            self._requeue(each.entry)
        return result

    def _adapt(self, result: BurstResult) -> None:
        if result.late >= self._at_once and result.late > _HARDLY * result.fired:
            self._at_once = self._at_once // 2 or self._concurrency
        elif result.fired > result.late:
            self._at_once = min(self._concurrency, 2 * self._at_once)

    async def _confirmed(self, candidate: Candidate, result: BurstResult) -> Confirmed | None:
        """Its own confirmation; None if it could not be had now."""
        entry = candidate.entry
        try:
            confirmed = await self._choice.single(entry.name)
        except ApiError as error:
            self._count(error, result)
            self._metrics.failed(error)
            entry.unconfirmed, entry.troubled = entry.unconfirmed + 1, True
            level = logging.WARNING if entry.unconfirmed == 1 else logging.DEBUG
            fields = self._fields(entry, candidate.due, result.now)
            _LOG.log(level, "a schedule cannot be confirmed, trying again: %s", error, extra=fields)
            if self._index.get(entry.name) is entry:
                self._index.postpone(entry, result.now + CONFIRM_RETRY)
            return None
        entry.unconfirmed = 0
        return confirmed

    def _count(self, error: ApiError, result: BurstResult) -> None:
        result.failed += 1
        result.late += not error.permanent
        result.answered |= error.permanent

    def _may_begin(self, shared: Confirmed | None, result: BurstResult) -> bool:
        """A step ends after two seconds, so that the next one reads the clock anew."""
        now = self._clock.monotonic()
        age_is_good = (
            shared.fresh(now) if shared is not None else now - result.begun <= CONFIRM_MAX_AGE_SECONDS
        )
        return age_is_good and self.creator.attendance.held()

    def _may_go_on(self, confirmed: Confirmed) -> bool:
        return confirmed.fresh(self._clock.monotonic()) and self.creator.attendance.held()

    async def _one(self, candidate: Candidate, confirmed: Confirmed, result: BurstResult) -> None:
        entry, due, now = candidate.entry, candidate.due, result.now
        if self._index.get(entry.name) is not entry or entry.next_due != due:
            return  # the watch brought a change meanwhile, which has queued it anew
        try:
            payload = await self._payload(candidate, confirmed, now)
            if payload is not None and not confirmed.fresh(self._clock.monotonic()):
                again = await self._confirmed(candidate, result)  # a large payload took its time
                if again is None:
                    return
                confirmed = again
                payload = payload if confirmed.versions.get(entry.name) == entry.version else None
            if payload is None:
                # Read anew: what changed is queued by that. What did not is looked at again, not at once.
                if self._index.get(entry.name) is entry:
                    self._index.postpone(entry, now + CONFIRM_RETRY)
                return
            if not self._may_go_on(confirmed):
                result.late += 1
                self._requeue(entry)
                return
            # Of two clocks that may be wrong this takes one out: its reader never takes the read for younger.
            confirmed_at = self._clock.earliest(confirmed.begun)
            created = await self.creator.create(entry, due, payload, confirmed_at, now)
        except ApiError as error:
            self._count(error, result)
            self._failed(entry, due, error, now)
        except NotDue as refusal:
            _LOG.error("a create was refused: %s", refusal, extra=self._fields(entry, due, now))
            self._requeue(entry)
        else:
            result.answered = True
            self._settle(self._successor(entry), due, created, result)

    async def _payload(self, candidate: Candidate, confirmed: Confirmed, now: datetime) -> str | None:
        """The payload of a confirmed schedule; None if another read showed that it is to be decided anew."""
        entry = candidate.entry
        if confirmed.versions.get(entry.name) == candidate.version == entry.version:
            if entry.payload is not None:
                return entry.payload
            schedule = await self._reread(entry.name, now)
            same = schedule is not None and self._index.get(entry.name) is entry
            return schedule.spec.payload if same and schedule is not None else None
        await self._reread(entry.name, now)
        return None

    async def _reread(self, name: str, now: datetime) -> DeploymentSchedule | None:
        known = self._index.get(name)
        try:
            schedule = await self._schedules.get(name)
        except NotFound:
            self._index.forget(known)
            return None
        self._index.upsert_read(schedule, now, known)
        return schedule

    def _settle(self, entry: Entry, due: datetime, created: Created, result: BurstResult) -> None:
        name, now = scheduled_run_name(entry.name, due), result.now
        if created is Created.NAME_TAKEN:
            entry.settle_skipped(due, due, 1, SkipReason.NAME_TAKEN)
            entry.trouble = Problem("NameTaken", f"the run {name} is there and belongs to another Deployment")
            self._metrics.skipped.labels(SkipReason.NAME_TAKEN.value).inc()
            _LOG.error("a due time was skipped: its name is taken", extra=self._fields(entry, due, now))
        else:
            entry.settle_fired(due)
            result.fired += 1
            if created is Created.CREATED:
                self._metrics.fired.inc()
                lateness = (now - due).total_seconds() + self._clock.monotonic() - result.begun
                self._metrics.lateness.observe(max(0.0, lateness))
            _LOG.debug("fired", extra=self._fields(entry, due, now) | {"run": name, "result": created.value})
        self._requeue(entry)
        self._index.touch(entry.name)

    def _successor(self, entry: Entry) -> Entry:
        """The entry that an edit during the create has put in its place: that one must not forget the run."""
        current = self._index.get(entry.name)
        return current if current is not None and current.metadata.uid == entry.metadata.uid else entry

    def _failed(self, entry: Entry, due: datetime, error: ApiError, now: datetime) -> None:
        entry.failures, entry.troubled = entry.failures + 1, True
        wait = min(MAX_RETRY, FIRST_RETRY * 2 ** min(entry.failures - 1, 8))
        if error.retry_after is not None:
            wait = max(wait, timedelta(seconds=min(error.retry_after, 60.0)))
        self._metrics.failed(error)
        fields = self._fields(entry, due, now) | {
            "error": f"{error}{remedy(error)}",
            "failures": entry.failures,
        }
        if _is_terminating(error):
            self._tell_terminating(error)
        elif error.permanent:
            before, entry.trouble = entry.trouble, _trouble(error, due)
            level = logging.DEBUG if before == entry.trouble else logging.WARNING
            _LOG.log(level, "a run could not be created", extra=fields)
            self._index.touch(entry.name)
        else:
            level = logging.WARNING if entry.failures == 1 else logging.DEBUG
            _LOG.log(level, "a run could not be created, trying again", extra=fields)
        if self._index.get(entry.name) is entry:
            self._index.postpone(entry, now + wait)

    def _tell_terminating(self, error: ApiError) -> None:
        if not self._terminating:
            _LOG.warning("the namespace is being deleted, nothing can fire: %s", error)
        self._terminating = True

    def _requeue(self, entry: Entry) -> None:
        if self._index.get(entry.name) is entry:
            self._index.requeue(entry)

    def _fields(self, entry: Entry, due: datetime, now: datetime) -> dict[str, object]:
        return {
            "schedule": entry.name,
            "generation": entry.metadata.generation,
            "due": due.isoformat(),
            "now": now.isoformat(),
            "identity": self.creator.attendance.identity,
        }


def _trouble(error: ApiError, due: datetime) -> Problem:
    reason = "CreateForbidden" if isinstance(error, Forbidden) else "CreateRefused"
    if isinstance(error, QuotaExceeded):
        reason = "QuotaExceeded"
    return Problem(
        reason, bounded(f"the run of {utc_text(due)} could not be created: {error}{remedy(error)}")
    )


def _is_terminating(error: ApiError) -> bool:
    """The API server names this field as the cause when the namespace is being deleted."""
    return isinstance(error, Forbidden) and "metadata.namespace" in error.fields
