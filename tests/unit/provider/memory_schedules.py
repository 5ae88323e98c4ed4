"""Schedules in memory for several providers, with the versions of a store and answers that a test loses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast

from astrabox.seams.scheduler import Schedule
from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.errors import AlreadyExists, Conflict, NotFound, QuotaExceeded, Unreachable
from astrabox_scheduler_crds.labels import DELETED_LABEL
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleStatus
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_kubernetes.schedules import Schedules
from astrabox_scheduler_kubernetes.store import Store
from astrabox_scheduler_kubernetes.timing import Timing

QUICK = Timing(first_pause=0.01, longest_pause=0.01, settle=0.05, straggle=0.1)
Act = Callable[[], Awaitable[object]]
Fate = Literal["lost", "late", "lost and carried out"]
Write = tuple[str, DeploymentSchedule]


class Memory:
    """What is stored; every write makes a version."""

    def __init__(self) -> None:
        self.stored: dict[str, DeploymentSchedule] = {}
        self.full = False
        self._version = 0

    @property
    def spec(self) -> Any:
        return self.stored["d"].spec

    def get(self, name: str) -> DeploymentSchedule:
        if name not in self.stored:
            raise NotFound("gone", status=404, reason="NotFound")
        return self.stored[name]

    def write(self, kind: str, schedule: DeploymentSchedule) -> None:
        name = schedule.metadata.name
        if kind == "create":
            if name in self.stored:
                raise AlreadyExists("there", status=409, reason="AlreadyExists")
            if self.full:
                raise QuotaExceeded("full", status=403, reason="Forbidden")
            self._put(schedule, generation=1, uid=f"u{self._version}")
            return
        old = self.get(name)
        if schedule.metadata.resource_version not in (None, old.metadata.resource_version):
            raise Conflict("changed", status=409, reason="Conflict")
        generation = (old.metadata.generation or 0) + (schedule.spec != old.spec)
        labels = {DELETED_LABEL: None, **schedule.metadata.labels}
        kept = {key: value for key, value in {**old.metadata.labels, **labels}.items() if value is not None}
        metadata = schedule.metadata.changed(
            labels=kept, annotations={**old.metadata.annotations, **schedule.metadata.annotations}
        )
        self._put(
            schedule.changed(metadata=metadata, status=old.status),
            generation=generation,
            uid=old.metadata.uid,
        )

    def status(self) -> None:
        """An operator writes what it did."""
        old = self.stored["d"]
        self._put(old.changed(status=ScheduleStatus(last_run=f"r{self._version}")))

    def _put(self, schedule: DeploymentSchedule, **fields: Any) -> None:
        self._version += 1
        metadata = schedule.metadata.changed(resource_version=str(self._version), **fields)
        self.stored[metadata.name] = schedule.changed(metadata=metadata)


@dataclass
class Line:
    """One provider's calls to the memory. `fates` and `acts` are used up by its writes, one each.

    "lost": not carried out, no answer. "late": the same, and the test carries it out by `arrive`.
    """

    memory: Memory
    clock: ServerClock
    fates: list[Fate | None] = field(default_factory=list)
    acts: list[Act | None] = field(default_factory=list)
    after: list[Act | None] = field(default_factory=list)
    """What happens when a write has its fate, before the provider knows."""
    looks: list[Act | None] = field(default_factory=list)
    """What happens before a look is answered."""
    cut: bool = False
    late: list[Write] = field(default_factory=list)
    writes: int = 0

    async def get(self, name: str) -> DeploymentSchedule:
        await _next(self.looks)
        if self.cut:
            raise Unreachable("cut")
        return self.memory.get(name)

    async def create(self, schedule: DeploymentSchedule) -> ObjectMeta:
        return await self._write("create", schedule)

    async def update(self, schedule: DeploymentSchedule) -> ObjectMeta:
        return await self._write("update", schedule)

    async def delete(self, name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        found = self.memory.get(name).metadata
        if uid not in (None, found.uid) or resource_version not in (None, found.resource_version):
            raise Conflict("changed", status=409, reason="Conflict")
        del self.memory.stored[name]

    async def _write(self, kind: str, schedule: DeploymentSchedule) -> ObjectMeta:
        self.writes += 1
        await _next(self.acts)
        fate = self.fates.pop(0) if self.fates else None
        if fate == "late":
            self.late.append((kind, schedule))
        if fate in (None, "lost and carried out"):
            self.memory.write(kind, schedule)
        await _next(self.after)
        if fate is not None:
            raise Unreachable("lost", ambiguous=True)
        return self.memory.get(schedule.metadata.name).metadata

    def arrive(self) -> None:
        """The API server carries out what it never answered."""
        for kind, schedule in self.late:
            try:
                self.memory.write(kind, schedule)
            except (Conflict, AlreadyExists):
                continue


async def _next(acts: list[Act | None]) -> None:
    if acts and (act := acts.pop(0)) is not None:
        await act()


class _Api:
    def __init__(self, line: Line) -> None:
        self.schedules = line
        self.clock = line.clock


class _Store:
    def __init__(self, line: Line) -> None:
        self.line = line
        self.clock = line.clock

    @asynccontextmanager
    async def use(self) -> AsyncIterator[SchedulerApi]:
        yield cast("SchedulerApi", _Api(self.line))


class Time:
    """The API server's, moved on by a test; each clock may be off by some seconds."""

    def __init__(self) -> None:
        self.seconds = datetime(2026, 6, 1, 12, tzinfo=UTC).timestamp()

    def clock(self, off: float = 0.0) -> ServerClock:
        return ServerClock(wall=lambda: self.seconds + off, monotonic=lambda: self.seconds)

    async def pass_(self, seconds: float) -> None:
        self.seconds += seconds
        await asyncio.sleep(0)


class Replica:
    """A provider's part that writes single schedules."""

    def __init__(self, memory: Memory, time: Time, off: float = 0.0) -> None:
        self.line = Line(memory, time.clock(off))
        self.schedules = Schedules(cast("Store", _Store(self.line)), QUICK, None)

    async def apply(self, *, enabled: bool = True, **payload: Any) -> None:
        await self.schedules.apply(Schedule("d", "* * * * *", "UTC", enabled, payload))

    async def delete(self) -> None:
        await self.schedules.delete("d")

    async def settled(self) -> None:
        """Wait until nothing is put back any more."""
        async with asyncio.timeout(30):
            while len(self.schedules._restorer):  # noqa: ASYNC110 - it tells nobody
                await asyncio.sleep(0.005)
