"""What the provider's tests on a real API server share: a namespace with an operator, and a set clock."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.confirm import ScheduleConfirm
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.firing import CATCH_UP_WINDOW
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import deployment_key, scheduled_run_name
from astrabox_scheduler_crds.presence import Presence, PresenceObserver
from astrabox_scheduler_crds.retention import DEFAULT_KEEP
from astrabox_scheduler_crds.run import Origin, RunSpec
from astrabox_scheduler_crds.run import RunInvocation as StoredRun
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from astrabox_scheduler_kubernetes.settings import PREFIX
from astrabox_scheduler_kubernetes.timing import Timing
from astrabox_scheduler_operator.burst import Burst
from astrabox_scheduler_operator.due_queue import DueQueue
from astrabox_scheduler_operator.firing_loop import FiringLoop
from astrabox_scheduler_operator.index import ScheduleIndex
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.missed import MissedCount
from astrabox_scheduler_operator.run_creator import RunCreator
from astrabox_scheduler_operator.skips import Skips
from tests.apiserver.provider.door import Door

QUICK = Timing(
    lease_duration=3.0,
    lease_period=1.0,
    beat=0.05,
    presence=0.1,
    sweep=0.5,
    first_pause=0.02,
    longest_pause=0.2,
    recheck=0.05,
    settle=2.0,
    recently=0.3,
    clocks=0.0,
    straggle=1.0,
    cancelled=0.3,
    hand_over=3.0,
)


class SetClock(ServerClock):
    """The wall clock, moved on by a test; no answer of the API server moves it back."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = timedelta()

    def observe(self, date: datetime, sent: float, received: float) -> None:
        pass

    def timestamp(self) -> float:
        return (datetime.now(UTC) + self._ahead).timestamp()

    def advance_to(self, instant: datetime) -> None:
        self._ahead = max(self._ahead, instant - datetime.now(UTC))

    def advance(self, seconds: float) -> None:
        self._ahead += timedelta(seconds=seconds)


class Attends:
    """An operator that is alone in its test: every schedule is its share."""

    def __init__(self, api: SchedulerApi, observer: PresenceObserver, clock: ServerClock) -> None:
        self._api = api
        self._observer = observer
        self._clock = clock
        self.identity = f"operator-{secrets.token_hex(4)}"

    def held(self) -> bool:
        return True

    def providers(self) -> Presence:
        return self._observer.presence("provider", self._clock.monotonic())

    def operators(self) -> frozenset[str]:
        return frozenset({self.identity})

    def steady(self) -> bool:
        return True

    async def refresh(self) -> None:
        leases = await self._api.leases.list()
        self._observer.observe(leases, self._clock.monotonic(), self._clock.now())


class Place:
    """One namespace with an operator that fires when it is told to, and providers on it."""

    def __init__(self, kubeconfig: Path, namespace: str, door: Door, direct: Path) -> None:
        self.kubeconfig = kubeconfig
        self.direct = direct
        self.namespace = namespace
        self.door = door
        self.clock = SetClock()
        self.observer = PresenceObserver()
        self.environ: dict[str, str] = {
            f"{PREFIX}KUBECONFIG": str(kubeconfig),
            f"{PREFIX}NAMESPACE": namespace,
            f"{PREFIX}STOP_TIMEOUT_SECONDS": "0.5",
            f"{PREFIX}MAX_ATTEMPTS": "4",
            f"{PREFIX}RETRY_FIRST_DELAY_SECONDS": "0.02",
            f"{PREFIX}RETRY_MAX_DELAY_SECONDS": "0.05",
            f"{PREFIX}REQUEST_TIMEOUT_SECONDS": "3",
        }
        self._api: SchedulerApi | None = None

    @property
    def api(self) -> SchedulerApi:
        """A client of the test's own, which does not go through the door."""
        assert self._api is not None
        return self._api

    async def __aenter__(self) -> Self:
        self._api = await open_api(ConnectSettings(str(self.direct)), self.namespace, clock=self.clock)
        await self.installed()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._api is not None
        await self._api.aclose()

    async def installed(self) -> None:
        """As after the chart's installation: an operator has a Lease."""
        now = datetime.now(UTC)
        await self.api.leases.create(
            Lease(
                metadata=ObjectMeta(name="operator-0", labels={labels.ROLE_LABEL: "operator"}),
                spec=LeaseSpec(
                    holder_identity="operator-0",
                    lease_duration_seconds=86400,
                    acquire_time=now.replace(microsecond=1),
                    renew_time=now.replace(microsecond=1),
                ),
            )
        )

    def provider(self, timing: Timing = QUICK, /, **environ: str) -> KubernetesSchedulerProvider:
        provider = KubernetesSchedulerProvider(
            environ=self.environ | {f"{PREFIX}{name}": value for name, value in environ.items()},
            timing=timing,
            clock=self.clock,
        )
        provider.configure(repository_backend=None)
        return provider

    @asynccontextmanager
    async def running(
        self, handler: Any, timing: Timing = QUICK, /, **environ: str
    ) -> AsyncIterator[KubernetesSchedulerProvider]:
        provider = self.provider(timing, **environ)
        await provider.start(handler)
        try:
            yield provider
        finally:
            await provider.stop()

    async def fire(self, start: datetime, end: datetime) -> None:
        """Let a new operator, which knows nothing, meet every due time from `start` to `end`."""
        attends = Attends(self.api, self.observer, self.clock)
        await attends.refresh()
        self.clock.advance_to(end)
        await until(lambda: self._renewed_since(attends, end))
        queue, metrics = DueQueue(), Metrics()
        index = ScheduleIndex(queue)
        for schedule in (await self.api.schedules.list()).items:
            index.upsert(schedule, self.clock.now())
        for entry in index:
            entry.cursor = max(entry.cursor, start)
            entry.plan()
            index.requeue(entry)
        burst = Burst(
            index=index,
            confirm=ScheduleConfirm(self.api.schedules, self.clock),
            schedules=self.api.schedules,
            creator=RunCreator(self.api.runs, attends, CATCH_UP_WINDOW),
            clock=self.clock,
            metrics=metrics,
            concurrency=20,
        )
        skips = Skips(index, attends, metrics)
        loop = FiringLoop(
            index=index,
            queue=queue,
            attendance=attends,
            burst=burst,
            skips=skips,
            missed=MissedCount(self.api.runs, skips, self.clock, DEFAULT_KEEP),
            clock=self.clock,
            metrics=metrics,
            window=CATCH_UP_WINDOW,
        )
        await loop.drain(self.clock.now())

    async def _renewed_since(self, attends: Attends, instant: datetime) -> bool:
        """Whether all live providers have shown that they were there at this time."""
        await attends.refresh()
        presence = attends.providers()
        renewed = {lease.metadata.name: lease.spec.renew_time for lease in presence.leases}
        return all((renewed[name] or instant) >= instant for name in presence.live)

    async def create_run(self, deployment_id: str = "d", **fields: Any) -> str:
        """A run as kubectl, or an operator, would create it; its name."""
        due: datetime | None = fields.get("due")
        key = deployment_key(deployment_id)
        name = scheduled_run_name(key, due) if due else fields.get("name", f"{key}-{secrets.token_hex(4)}")
        marks = {labels.DEPLOYMENT_LABEL: key} if fields.get("labelled", True) else {}
        if assignee := fields.get("assignee"):
            marks[labels.ASSIGNEE_LABEL] = assignee
        origin = None
        if confirmed := fields.get("confirmed"):
            origin = Origin(identity="operator-0", at=self.clock.now(), confirmed_at=confirmed)
        spec = RunSpec(
            deployment_id=deployment_id,
            trigger="schedule" if due else "manual",
            due_time=due,
            payload=fields.get("payload", '{"prompt":"p"}'),
            created_by=origin,
        )
        await self.api.runs.create(StoredRun(metadata=ObjectMeta(name=name, labels=marks), spec=spec))
        return name

    async def attended(self, instant: datetime) -> None:
        """The Lease of a provider that was there at this time, and has ended in order since."""
        spec = LeaseSpec(
            acquire_time=instant - timedelta(hours=1), renew_time=instant + timedelta(microseconds=1)
        )
        name = f"ended-{secrets.token_hex(4)}"
        metadata = ObjectMeta(name=name, labels={labels.ROLE_LABEL: "provider"})
        await self.api.leases.create(Lease(metadata=metadata, spec=spec))

    def recorded(self, provider: KubernetesSchedulerProvider) -> list[str]:
        """The calls that a started provider makes from now on: method and last parts of the path."""
        calls: list[str] = []
        (shared,) = provider._engine()._store._by_loop.values()
        assert shared.api is not None
        transport = shared.api.transport
        request = transport.request

        async def record(method: str, path: str, **arguments: Any) -> bytes:
            calls.append(f"{method} {path.rsplit('/namespaces/', maxsplit=1)[-1].split('/', 2)[-1]}")
            return await request(method, path, **arguments)

        transport.request = record  # type: ignore[method-assign]
        return calls

    async def phase(self, name: str) -> str:
        return str((await self.api.runs.get(name)).status.phase)

    async def until_phase(self, name: str, *phases: str, within: float = 10.0) -> StoredRun:
        async def reached() -> bool:
            return await self.phase(name) in phases

        try:
            await until(reached, within)
        except TimeoutError:
            run = await self.api.runs.get(name)
            raise AssertionError(f"{name}: {run.metadata.labels} {run.status}") from None
        return await self.api.runs.get(name)


async def until(question: Callable[[], Awaitable[bool]], within: float = 10.0) -> None:
    """Ask again until the answer is yes; TimeoutError after a bound."""
    async with asyncio.timeout(within):
        while not await question():  # noqa: ASYNC110 - the event is in the store
            await asyncio.sleep(0.01)


async def true(value: object) -> bool:
    """For `until`."""
    return bool(value)


def lease_of(provider: KubernetesSchedulerProvider) -> str:
    """Name of the Lease of a started provider."""
    life = provider._engine()._life
    assert life is not None
    return life.keeper.name


def descriptors() -> int:
    """How many files and sockets this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def kill(provider: KubernetesSchedulerProvider) -> None:
    """End a provider as a lost process ends: nothing is written, the Lease runs out by itself."""
    engine = provider._engine()
    life = engine._life
    assert life is not None
    keeper, dispatcher = life.keeper, life.dispatcher
    await dispatcher._end_services()
    await dispatcher._end_intake()
    tasks = [task for _, task in dispatcher._in_progress.values()]
    for attempt, task in dispatcher._in_progress.values():
        attempt.lost = True
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    dispatcher._waiting.drain()
    keeper._term.end = lambda *_: None  # type: ignore[method-assign]
    await keeper.release()
    engine._life = None
    await engine._store.release()


def minute(now: datetime) -> datetime:
    """The due time of a schedule for every minute."""
    return now.replace(second=0, microsecond=0)
