"""The reference provider: all guarantees that one process can give, in memory."""

import asyncio
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, Protocol

from astrabox.seams.scheduler import (
    AdmittedTurn,
    InvalidSchedule,
    RunHandler,
    RunPermanentError,
    Schedule,
    ScheduleCapacityExceeded,
    ScheduledRun,
    SchedulerProperties,
    SchedulerProvider,
    SchedulerUnavailable,
)
from astrabox.testing.memory_calendar import EveryMinute
from astrabox.testing.memory_store import MemoryStore, StoredRun, StoredSchedule, StoreFaultError

MAX_LIMIT: Final = 200


class Calendar(Protocol):
    """What reads cron expressions; ValueError says what is wrong with one."""

    def check(self, cron: str, timezone: str) -> None:
        """Raise ValueError unless the expression and the zone can be used."""

    def between(self, cron: str, timezone: str, start: datetime, end: datetime) -> Iterable[datetime]:
        """Return the due times d with start < d < end, aware UTC, ascending."""


class MemoryDeployment:
    """What replicas share: the store, and who of them is alive."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.live: dict[str, MemorySchedulerProvider] = {}
        self.numbers = itertools.count(1)


class MemorySchedulerProvider(SchedulerProvider):
    """A replica on a `MemoryDeployment`; due times come only through `fire`.

    ``backoff`` is the first wait before a retry and ``drain`` the bound of `stop`, in seconds.
    """

    name: ClassVar[str] = "memory"
    max_attempts: ClassVar[int] = 4

    def __init__(
        self,
        deployment: MemoryDeployment | None = None,
        *,
        calendar: Calendar | None = None,
        backoff: float = 0.02,
        drain: float = 0.1,
        max_active_schedules: int | None = None,
    ) -> None:
        self.deployment = deployment or MemoryDeployment()
        self.store = self.deployment.store
        self.calendar: Calendar = calendar or EveryMinute()
        self.identity = f"replica-{next(self.deployment.numbers)}"
        self._backoff = backoff
        self._drain = drain
        self._max_active = max_active_schedules
        self._handler: RunHandler | None = None
        self._stopping = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def properties(self) -> SchedulerProperties:
        """Any replica in the process takes over; nothing fires after a disable."""
        return SchedulerProperties("cluster", self._max_active, 0)

    def configure(self, *, repository_backend: Any) -> None:
        """Take any backend; this provider has a store of its own."""

    async def start(self, handler: RunHandler) -> None:
        """Begin to dispatch, first of all what nobody alive is dispatching."""
        self._handler = handler
        self.deployment.live[self.identity] = self
        await self.adopt()

    async def stop(self) -> None:
        """Let calls in flight end within the drain time, then hand over what is left."""
        self._stopping.set()
        if self.deployment.live.pop(self.identity, None) is None:
            return
        tasks = list(self._tasks.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=self._drain)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        for other in list(self.deployment.live.values()):
            await other.adopt()

    async def adopt(self) -> None:
        """Go on with the runs whose replica is gone."""
        for run in await self.store.runs():
            if not run.ended and run.owner not in self.deployment.live:
                await self.store.update_run(run.run_id, owner=self.identity)
                self._dispatch_soon(run.run_id)

    # Schedules

    async def apply(self, schedule: Schedule) -> None:
        """Check, then replace in one step."""
        self.check(schedule)
        with self.errors():
            await self.check_capacity(schedule)
            await self.store.put_schedule(StoredSchedule.of(schedule))

    async def delete(self, deployment_id: str) -> None:
        """Remove the Schedule and no run."""
        with self.errors():
            await self.store.delete_schedule(deployment_id)

    async def reconcile(self, schedules: Sequence[Schedule]) -> None:
        """Remove first, so that capacity is free for what is added."""
        wanted = {rule.deployment_id for rule in schedules}
        with self.errors():
            for stored in await self.store.schedules():
                if stored.deployment_id not in wanted:
                    await self.store.delete_schedule(stored.deployment_id)
        for rule in schedules:
            await self.apply(rule)

    def check(self, schedule: Schedule) -> None:
        """Raise InvalidSchedule unless the calendar can read the rule."""
        try:
            self.calendar.check(schedule.cron, schedule.timezone)
        except ValueError as error:
            raise InvalidSchedule(f"The time rule cannot be used: {error}") from error

    async def check_capacity(self, schedule: Schedule) -> None:
        """Raise ScheduleCapacityExceeded if the Schedule would be one too many."""
        others = [s for s in await self.store.schedules() if s.deployment_id != schedule.deployment_id]
        active = sum(stored.enabled for stored in others)
        if schedule.enabled and self._max_active is not None and active >= self._max_active:
            raise ScheduleCapacityExceeded(f"All {self._max_active} active Schedules are in use.")

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Translate a fault of the store."""
        try:
            yield
        except StoreFaultError as error:
            raise SchedulerUnavailable("The scheduler's store is not available; try again later.") from error

    # Runs

    async def fire(self, deployment_id: str, start: datetime, end: datetime) -> None:
        """Meet every due time d with start < d < end, if this replica is alive."""
        rule = await self.store.schedule(deployment_id)
        if self.identity not in self.deployment.live or rule is None or not rule.enabled:
            return
        for due in self.calendar.between(rule.cron, rule.timezone, start, end):
            await self.record_due(rule, due)

    async def record_due(self, rule: StoredSchedule, due: datetime) -> None:
        """Insert the run of a due time; the id is the uniqueness constraint."""
        await self.insert(
            StoredRun(
                run_id=f"{due:%Y%m%dT%H%M}Z {rule.deployment_id}",
                deployment_id=rule.deployment_id,
                trigger="schedule",
                scheduled_for=due,
                payload_text=rule.payload_text,
                created_at=self.store.now(),
            )
        )

    async def insert(self, run: StoredRun) -> StoredRun:
        """Insert a run and dispatch it, unless its id is taken."""
        owned = replace(run, owner=self.identity)
        if await self.store.insert_run(owned):
            self._dispatch_soon(owned.run_id)
        return owned

    async def enqueue(
        self,
        deployment_id: str,
        payload: Mapping[str, Any],
        *,
        trigger: Literal["manual", "replay"],
        replayed_from_run_id: str | None = None,
    ) -> ScheduledRun:
        """Insert a run; dispatch begins after the return."""
        run = StoredRun(
            run_id=f"{trigger}-{next(self.deployment.numbers)} {deployment_id}",
            deployment_id=deployment_id,
            trigger=trigger,
            scheduled_for=None,
            payload_text=json.dumps(payload, default=dict),
            created_at=self.store.now(),
            replayed_from_run_id=replayed_from_run_id,
        )
        with self.errors():
            return (await self.insert(run)).row()

    async def list_runs(self, deployment_id: str, *, limit: int = 50) -> list[ScheduledRun]:
        """Return the newest first; the store keeps them in the order of insertion."""
        with self.errors():
            runs = await self.store.runs(deployment_id)
        return [run.row() for run in runs[::-1][: max(1, min(limit, MAX_LIMIT))]]

    # Dispatch

    def _dispatch_soon(self, run_id: str) -> None:
        if self._stopping.is_set():
            return
        task = asyncio.create_task(self._dispatch(run_id), name=f"dispatch {run_id}")
        self._tasks[run_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(run_id, None))

    async def _dispatch(self, run_id: str) -> None:
        while not self._stopping.is_set():
            try:
                run = await self.store.update_run(run_id, status="running")
                if await self.attempt(run):
                    return
            except StoreFaultError:
                pass  # costs no attempt: the handler is not to blame
            await self._pause(self._backoff)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopping.wait()

    async def attempt(self, run: StoredRun) -> bool:
        """Call the handler once; return whether the run has come to its end."""
        try:
            turn = await self.call(run)
        except StoreFaultError:
            raise
        except RunPermanentError as error:
            return await self.fail(run, error)
        except Exception as error:  # noqa: BLE001 - anything else is worth a retry
            run = await self.store.update_run(run.run_id, attempts=run.attempts + 1)
            return run.attempts >= self.max_attempts and await self.fail(run, error)
        await self.store.update_run(run.run_id, turn_id=turn.turn_id, status="completed")
        return True

    async def call(self, run: StoredRun) -> AdmittedTurn:
        """Make the calls that are still to be made, with the Session saved in between."""
        assert self._handler is not None
        session_id = run.session_id
        if session_id is None:
            session_id = await self._handler.start_session(run.invocation())
            await self.store.update_run(run.run_id, session_id=session_id)
        return await self._handler.admit_turn(run.invocation(), session_id)

    async def fail(self, run: StoredRun, error: Exception) -> bool:
        """Mark a run failed for good."""
        await self.store.update_run(run.run_id, status="failed", error=str(error))
        return True
