"""Writes schedule status: coalesced, behind the firing, and only for this operator's share."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from astrabox_scheduler_client.errors import ApiError, Conflict, MalformedAnswer, NotFound
from astrabox_scheduler_crds.metadata import ObjectMeta, condition_of
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleStatus
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_crds.transitions import status_patch
from astrabox_scheduler_operator.attendance import Attendance, is_ours
from astrabox_scheduler_operator.entry import OF_A_DUE_TIME, READY, Entry, Problem
from astrabox_scheduler_operator.index import ScheduleIndex
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.preflight import remedy
from astrabox_scheduler_operator.schedule_status import status_of
from astrabox_scheduler_operator.setback import RETRY_SECONDS, Setback

CONCURRENCY: Final = 4
MIN_INTERVAL_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 30.0
"""Behind a burst that does not end, a status still comes this often."""
_OF_THE_SCHEDULE: Final = frozenset(
    {"InvalidCron", "InvalidPayload", "InvalidZone", "NameMismatch", "Unreadable"}
)
_LOG = logging.getLogger(__name__)


class StatusStore(Protocol):
    """The calls for schedules that status needs."""

    async def get(self, name: str) -> DeploymentSchedule:
        """Read it. Raises ApiError."""
        ...

    async def patch_status(
        self, name: str, status: Mapping[str, Any], resource_version: str | None = None
    ) -> ObjectMeta:
        """Merge into its status. Raises ApiError."""
        ...


class StatusWriter:
    """`touch` a name whenever its status may differ; `run` writes what does."""

    def __init__(
        self,
        *,
        store: StatusStore,
        attendance: Attendance,
        clock: ServerClock,
        metrics: Metrics,
        idle: asyncio.Event,
        tell_problem: Callable[[Entry, Problem], None] = lambda _entry, _problem: None,
    ) -> None:
        self._store = store
        self._attendance = attendance
        self._clock = clock
        self._metrics = metrics
        self._idle = idle
        self._tell_problem = tell_problem
        self._waiting: dict[str, float] = {}  # name -> not before, monotonic seconds; oldest touch first
        self._written: dict[str, float] = {}
        self._setback = Setback()
        self._unanswered: dict[str, ScheduleStatus] = {}
        """What was stored before a write whose answer did not come: what it says new may not be told yet."""
        self._busy: set[str] = set()
        self._touched = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def touch(self, name: str) -> None:
        """Its status may have to be written."""
        if name not in self._waiting:
            self._waiting[name] = self._written.get(name, float("-inf")) + MIN_INTERVAL_SECONDS
            self._touched.set()

    async def run(self, index: ScheduleIndex) -> None:
        """Write until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(self._work(index))

    async def flush(self, index: ScheduleIndex) -> None:
        """Write what waits, at once, and each name once: what fails now waits for another operator."""
        names = iter(tuple(self._waiting))

        async def work() -> None:
            for name in names:
                self._waiting.pop(name, None)
                await self.write(index, name)

        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(work())

    async def write(self, index: ScheduleIndex, name: str) -> bool:
        """Write the status of one schedule if it is ours and differs; True if it was written."""
        entry = index.get(name)
        if entry is None or not self._attendance.held() or not is_ours(name, self._attendance):
            if entry is None or self._attendance.held():
                self._unanswered.pop(name, None)
            self._setback.dropped(name)
            return False
        now = self._clock.now()
        unanswered, wanted = self._unanswered.pop(name, None), status_of(entry, now)
        before = unanswered or entry.stored
        patch = status_patch(entry.stored, wanted)
        if not patch:
            self._setback.dropped(name)
            self._tell(entry, before, wanted)  # nothing new, but for a write without an answer
            return False
        try:
            stored = await self._store.patch_status(name, patch, entry.metadata.resource_version)
        except NotFound:
            self._setback.dropped(name)
            return False  # the watch or the sweep will say so
        except Conflict as error:
            if unanswered is not None:
                self._unanswered[name] = unanswered  # it was ours that was first
            await self._read_again(index, name, error)
        except ApiError as error:
            self._unanswered[name] = before
            self._failed(name, error)
        else:
            self._took(index, entry, stored, wanted)
            # Compared with what was there at the start: the watch may be back before the answer is.
            self._tell(entry, before, wanted)
            return True
        return False

    def _failed(self, name: str, error: ApiError) -> None:
        """Try again later; of all that fail until they succeed, the first of its kind is told."""
        now = self._clock.monotonic()
        self._metrics.status_failed(error)
        level = logging.WARNING if self._setback.failed(name, error, now) else logging.DEBUG
        told = "statuses of schedules cannot be written, trying on: %s%s"
        _LOG.log(level, told, error, remedy(error), extra={"schedule": name})
        self._waiting[name] = now + RETRY_SECONDS

    def _took(self, index: ScheduleIndex, entry: Entry, stored: ObjectMeta, wanted: ScheduleStatus) -> None:
        self._metrics.status_writes.inc()
        if self._setback.succeeded(entry.name):
            _LOG.info("statuses of schedules can be written again")
        self._written[entry.name] = self._clock.monotonic()
        if len(self._written) > 2 * len(index) + 1000:
            self._written = {name: at for name, at in self._written.items() if index.get(name) is not None}
        entry.stored = wanted
        entry.metadata = entry.metadata.changed(resource_version=stored.resource_version)

    def _tell(self, entry: Entry, before: ScheduleStatus, after: ScheduleStatus) -> None:
        """By an Event what is new; of due times that fail one after the other for one reason, the first."""
        told = entry.problem or entry.trouble
        if told is None:
            return
        said, says = _ready(before), _ready(after)
        of_the_schedule = told.reason in _OF_THE_SCHEDULE and said != says
        of_a_due_time = told.reason in OF_A_DUE_TIME and said[0] != says[0]
        if of_the_schedule or of_a_due_time:
            self._tell_problem(entry, told)

    async def _read_again(self, index: ScheduleIndex, name: str, conflict: Conflict) -> None:
        """Somebody wrote the object since we saw it; or, if not, it was refused as if somebody had."""
        known = index.get(name)
        try:
            found = await self._store.get(name)
            index.upsert_read(found, self._clock.now(), known)  # touches it
            if known and found.metadata.resource_version == known.metadata.resource_version:
                self._failed(name, conflict)
        except NotFound:
            index.forget(known)
            self._unanswered.pop(name, None)
            self._setback.dropped(name)
        except MalformedAnswer:
            self._setback.dropped(name)
        except ApiError as error:
            self._failed(name, error)

    async def _work(self, index: ScheduleIndex) -> None:
        while True:
            name = await self._next()
            try:
                await self.write(index, name)
            except asyncio.CancelledError:
                self.touch(name)  # the process ends: `flush` writes it
                raise
            finally:
                self._busy.discard(name)

    async def _next(self) -> str:
        while True:
            await self._wait_for_idle()
            name = self._first_ready(self._clock.monotonic())
            if name is not None:
                del self._waiting[name]
                self._busy.add(name)
                return name
            self._touched.clear()
            try:
                async with asyncio.timeout(MIN_INTERVAL_SECONDS / 2 if self._waiting else None):
                    await self._touched.wait()
            except TimeoutError:
                continue

    def _first_ready(self, now: float) -> str | None:
        """What has waited for longest; those that failed come last."""
        if self._setback.pauses(now):
            return None
        failed = None
        for name, ready in self._waiting.items():
            if ready <= now and name not in self._busy:
                if name not in self._setback:
                    return name
                failed = failed or name
        return failed

    async def _wait_for_idle(self) -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._idle.wait()
        except TimeoutError:
            return


def _ready(status: ScheduleStatus) -> tuple[str | None, str | None]:
    """Reason and message of the Ready condition."""
    ready = condition_of(status.conditions, READY)
    return (None, None) if ready is None else (ready.reason, ready.message)
