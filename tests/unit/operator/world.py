"""The API server of scheduling tests, played on the typed client's interface, and operators in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, Literal

from astrabox_scheduler_client.confirm import Confirmed
from astrabox_scheduler_client.errors import ApiError, Conflict, NotFound
from astrabox_scheduler_client.schedules import Version
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.firing import CATCH_UP_WINDOW
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.presence import Presence
from astrabox_scheduler_crds.retention import DEFAULT_KEEP
from astrabox_scheduler_crds.run import Phase, RunInvocation
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec, ScheduleStatus
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_operator.burst import Burst
from astrabox_scheduler_operator.due_queue import DueQueue
from astrabox_scheduler_operator.entry import Entry, Gap
from astrabox_scheduler_operator.firing_loop import FiringLoop, StepResult
from astrabox_scheduler_operator.index import ScheduleIndex
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.missed import MissedCount
from astrabox_scheduler_operator.reporter import Reporter
from astrabox_scheduler_operator.run_creator import RunCreator
from astrabox_scheduler_operator.skips import Skips
from astrabox_scheduler_operator.status_writer import StatusWriter
from tests.unit.operator.run_store import Runs, merged_with

START = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)
MARKER = "the-payload-marker"


def at(text: str) -> datetime:
    """2026-06-01 at HH:MM or HH:MM:SS, in UTC."""
    return datetime.fromisoformat(f"2026-06-01T{text}+00:00")


class Schedules:
    def __init__(self) -> None:
        self.stored: dict[str, DeploymentSchedule] = {}
        self.versions_seen = count(1)
        self.gets: list[str] = []
        self.lists = 0
        self.fail: ApiError | None = None
        self.patches: list[tuple[str, dict[str, Any]]] = []

    def put(self, name: str, created: datetime = START, **spec: Any) -> DeploymentSchedule:
        """Create it, or change fields of its spec."""
        old = self.stored.get(name)
        if old is None:
            fields: dict[str, Any] = {
                "deployment_id": name,
                "cron": "* * * * *",
                "time_zone": "UTC",
                "payload": f'{{"p":"{MARKER}"}}',
            }
            metadata = ObjectMeta(
                name=name,
                uid=f"uid-{name}-{next(self.versions_seen)}",
                generation=1,
                creation_timestamp=created,
            )
            item = DeploymentSchedule(metadata=metadata, spec=ScheduleSpec(**(fields | spec)))
        else:
            generation = (old.metadata.generation or 0) + 1
            item = old.changed(
                spec=old.spec.changed(**spec), metadata=old.metadata.changed(generation=generation)
            )
        return self._store(item)

    def _store(self, item: DeploymentSchedule) -> DeploymentSchedule:
        version = f"{next(self.versions_seen)}"
        item = item.changed(metadata=item.metadata.changed(resource_version=version))
        self.stored[item.metadata.name] = item
        return item

    async def get(self, name: str) -> DeploymentSchedule:
        self.gets.append(name)
        self._raise()
        if name not in self.stored:
            raise NotFound("gone", status=404, reason="NotFound")
        return self.stored[name]

    async def uids(self) -> frozenset[str | None]:
        return frozenset(each.metadata.uid for each in self.stored.values())

    async def enabled_versions(self) -> dict[str, Version]:
        self.lists += 1
        self._raise()
        return {
            item.metadata.name: (item.metadata.uid or "", item.metadata.generation or 0)
            for item in self.stored.values()
            if item.spec.enabled
        }

    async def list_deleted(self) -> list[DeploymentSchedule]:
        self._raise()
        return [
            item
            for item in self.stored.values()
            if labels.DELETED_LABEL in item.metadata.labels and not item.spec.enabled
        ]

    async def delete(self, name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        self._raise()
        metadata = self.stored[name].metadata
        if (uid, resource_version) != (metadata.uid, metadata.resource_version):
            raise Conflict("changed", status=409, reason="Conflict")
        del self.stored[name]

    async def patch_status(
        self, name: str, status: Mapping[str, Any], resource_version: str | None = None
    ) -> ObjectMeta:
        self._raise()
        item = self.stored.get(name)
        if item is None:
            raise NotFound("gone", status=404, reason="NotFound")
        if resource_version not in (None, item.metadata.resource_version):
            raise Conflict("changed", status=409, reason="Conflict")
        self.patches.append((name, dict(status)))
        merged = merged_with(item.status.to_dict(), status)
        return self._store(item.changed(status=ScheduleStatus.model_validate(merged))).metadata

    def _raise(self) -> None:
        if self.fail is not None:
            raise self.fail


@dataclass
class Attendance:
    """Who is there. `after_refresh`: providers that only a fresh list shows."""

    world: World
    identity: str
    is_held: bool = True
    is_steady: bool = True
    refreshes: int = 0

    def held(self) -> bool:
        return self.is_held

    def providers(self) -> Presence:
        return self.world.presence()

    def operators(self) -> frozenset[str]:
        return frozenset(self.world.operators) | {self.identity}

    def steady(self) -> bool:
        return self.is_steady

    async def refresh(self) -> None:
        self.refreshes += 1
        self.world.on_refresh()


@dataclass
class Confirm:
    world: World
    asked: list[int] = field(default_factory=list)
    fail: ApiError | None = None
    takes: float = 0.0
    meanwhile: Callable[[], None] = lambda: None

    async def versions(self, names: Collection[str]) -> Confirmed:
        self.asked.append(len(names))
        if self.fail is not None:
            raise self.fail
        begun, now = self.world.monotonic, self.world.clock.now()
        found = await self.world.schedules.enabled_versions()
        self.meanwhile()
        self.world.monotonic += self.takes
        return Confirmed(begun, now, {name: found[name] for name in names if name in found})


@dataclass
class Events:
    written: list[tuple[str, str, str]] = field(default_factory=list)
    onces: list[str | None] = field(default_factory=list)

    async def create(
        self,
        kind: str,
        about: ObjectMeta,
        reason: str,
        note: str,
        *,
        type: Literal["Normal", "Warning"] = "Normal",  # noqa: A002
        action: str = "Schedule",
        once: str | None = None,
    ) -> None:
        assert kind == labels.SCHEDULE_KIND
        self.onces.append(once)
        self.written.append((about.name, reason, note))


class World:
    """One API server, its clock, and who is there."""

    def __init__(self) -> None:
        self.now = START
        self.monotonic = 1000.0
        self.clock = ServerClock(self.wall, lambda: self.monotonic)
        self.schedules = Schedules()
        self.runs = Runs()
        self.operators: set[str] = set()
        self.leases: list[Lease] = []
        self.live: set[str] = set()
        self.on_refresh: Callable[[], None] = lambda: None

    def wall(self) -> float:
        return self.now.timestamp()

    def presence(self) -> Presence:
        return Presence(tuple(map(self._renewed, self.leases)), frozenset(self.live))

    def _renewed(self, lease: Lease) -> Lease:
        """A live one renews all the time."""
        if lease.metadata.name not in self.live:
            return lease
        assert lease.spec.acquire_time is not None
        return lease.changed(spec=lease.spec.changed(renew_time=max(self.now, lease.spec.acquire_time)))

    def provider(self, name: str, since: datetime, until: datetime | None = None) -> None:
        """A provider that was there since then; live, or gone after `until`."""
        self.leases = [each for each in self.leases if each.metadata.name != name]
        spec = LeaseSpec(holder_identity=name, acquire_time=since, renew_time=until or since)
        metadata = ObjectMeta(name=name, labels={labels.ROLE_LABEL: "provider"}, resource_version="1")
        self.leases.append(Lease(metadata=metadata, spec=spec))
        self.live.discard(name)
        if until is None:
            self.live.add(name)

    def operator(self, identity: str = "op-1", window: timedelta = CATCH_UP_WINDOW) -> Operator:
        self.operators.add(identity)
        return Operator(self, identity, window)

    def due_names(self, name: str) -> list[str]:
        """HH:MM of the runs of a schedule, in order."""
        key = deployment_key(name)
        return [
            f"{run.spec.due_time:%H:%M}"
            for _, run in sorted(self.runs.stored.items())
            if run.metadata.labels.get(labels.DEPLOYMENT_LABEL) == key and run.spec.due_time
        ]


class Operator:
    """The parts that decide, wired as the process wires them, without a process."""

    def __init__(self, world: World, identity: str, window: timedelta) -> None:
        self.world = world
        self.attendance = Attendance(world, identity)
        self.metrics = Metrics()
        self.queue = DueQueue()
        self.touched: list[str] = []
        self.index = ScheduleIndex(self.queue, self._changed)
        self.confirm = Confirm(world)
        self.creator = RunCreator(world.runs, self.attendance, window)
        burst = Burst(
            index=self.index,
            confirm=self.confirm,
            schedules=world.schedules,
            creator=self.creator,
            clock=world.clock,
            metrics=self.metrics,
            concurrency=8,
        )
        skips = Skips(self.index, self.attendance, self.metrics)
        self.missed = MissedCount(world.runs, skips, world.clock, DEFAULT_KEEP)
        self.firing = FiringLoop(
            index=self.index,
            queue=self.queue,
            attendance=self.attendance,
            burst=burst,
            skips=skips,
            missed=self.missed,
            clock=world.clock,
            metrics=self.metrics,
            window=window,
            tell_gap=self._tell_gap,
        )
        self.events = Events()
        self.reporter = Reporter(self.events, self.firing.idle)
        self.status = StatusWriter(
            store=world.schedules,
            attendance=self.attendance,
            clock=world.clock,
            metrics=self.metrics,
            idle=self.firing.idle,
            tell_problem=self.reporter.problem,
        )

    def _tell_gap(self, entry: Entry, gap: Gap) -> None:
        self.reporter.gap(entry, gap)

    def _changed(self, name: str) -> None:
        self.touched.append(name)
        self.status.touch(name)

    def see(self, *names: str) -> None:
        """The watch brings the present state of these schedules, or of all."""
        for name in names or tuple(self.world.schedules.stored):
            item = self.world.schedules.stored.get(name)
            if item is None:
                self.index.forget(self.index.get(name))
            else:
                self.index.upsert(item, self.world.now)

    def entry(self, name: str) -> Entry:
        """What it knows of a schedule that it has seen."""
        entry = self.index.get(name)
        assert entry is not None
        return entry

    async def at(self, now: datetime) -> StepResult:
        """Drive the loop at this time until nothing is due, and count what it passed over."""
        self.world.monotonic += max(0.0, (now - self.world.now).total_seconds())
        self.world.now = now
        result = await self.firing.drain(now)
        return replace(result, skipped=result.skipped + await self.count())

    async def count(self) -> int:
        """Count what was missed."""
        return await self.missed.count(self.firing.idle)

    async def minutes(self, first: str, last: str) -> None:
        """Drive the loop one second after each whole minute of a span."""
        now = at(first)
        while now <= at(last):
            await self.at(now + timedelta(seconds=1))
            now += timedelta(minutes=1)

    async def write_status(self) -> None:
        await self.status.flush(self.index)

    def sample(self, name: str, **marks: str) -> float:
        return self.metrics.registry.get_sample_value(f"astrabox_scheduler_operator_{name}", marks) or 0.0


def finished(run: RunInvocation, phase: Phase) -> RunInvocation:
    return run.changed(status=run.status.changed(phase=phase))
