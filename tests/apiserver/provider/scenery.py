"""What the provider's tests on a real API server share: a door that can be shut, a set clock, an operator."""

import asyncio
import contextlib
import secrets
import socket
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import yaml

from astrabox.seams.scheduler import AdmittedTurn, RunInvocation, Schedule
from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.confirm import ScheduleConfirm
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.firing import CATCH_UP_WINDOW
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import deployment_key, scheduled_run_name
from astrabox_scheduler_crds.presence import Presence, PresenceObserver
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
from astrabox_scheduler_operator.run_creator import RunCreator

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


class Door:
    """A TCP relay to the API server, in a thread of its own; shut, it refuses and cuts all connections."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 443)
        self._open = threading.Event()
        self._silent = threading.Event()
        self._open.set()
        self._pairs: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._frozen: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()
        probe = socket.create_server(("127.0.0.1", 0))
        self.port = probe.getsockname()[1]
        probe.close()
        self._listen()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self._start(self._accept, self._listener)

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                inside, _ = listener.accept()
            except OSError:
                return
            try:
                outside = socket.create_connection(self._target)
            except OSError:
                inside.close()
                continue
            for each in (inside, outside):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs |= {inside, outside}
            self._start(self._pump, inside, outside)
            self._start(self._pump, outside, inside)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if source in self._frozen:
                    continue
                while self._silent.is_set() and not self._ended.is_set():
                    self._ended.wait(0.01)
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._pairs -= {source, sink}
        source.close()

    def shut(self) -> None:
        """Refuse new connections and cut the others."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.cut()

    def cut(self) -> None:
        """End all connections of now; new ones work."""
        with self._lock:
            pairs = list(self._pairs)
        for each in pairs:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        self._listen()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        self.shut()
        try:
            yield
        finally:
            self.open()

    def freeze(self) -> None:
        """Let nothing through the connections of now any more; new ones work."""
        with self._lock:
            self._frozen |= self._pairs

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Connections stay, nothing goes through: a black hole."""
        self._silent.set()
        try:
            yield
        finally:
            self._silent.clear()

    def end(self) -> None:
        self._ended.set()
        self._silent.clear()
        self.shut()
        for thread in self._threads:
            thread.join(2.0)


def kubeconfig_through(kubeconfig: Path, target: Path, url: str, namespace: str) -> Path:
    """A copy of a kubeconfig that goes to another address of the same server."""
    content = yaml.safe_load(kubeconfig.read_text())
    for cluster in content["clusters"]:
        cluster["cluster"]["server"] = url
    for context in content["contexts"]:
        context["context"]["namespace"] = namespace
    target.write_text(yaml.safe_dump(content))
    return target


def server_of(kubeconfig: Path) -> str:
    url = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    assert isinstance(url, str)
    return url


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
        queue, metrics = DueQueue(), Metrics()
        index = ScheduleIndex(queue)
        for schedule in (await self.api.schedules.list()).items:
            index.upsert(schedule, self.clock.now(), read=True)
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
        loop = FiringLoop(
            index=index,
            queue=queue,
            attendance=attends,
            burst=burst,
            clock=self.clock,
            metrics=metrics,
            window=CATCH_UP_WINDOW,
        )
        await loop.drain(self.clock.now())

    async def create_run(self, deployment_id: str = "d", **fields: Any) -> str:
        """A run as kubectl, or an operator, would create it; its name."""
        due: datetime | None = fields.get("due")
        key = deployment_key(deployment_id)
        name = scheduled_run_name(key, due) if due else f"{key}-{secrets.token_hex(4)}"
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


def rule(deployment_id: str = "d", **fields: Any) -> Schedule:
    """An AstraBox Schedule."""
    return Schedule(
        deployment_id,
        fields.get("cron", "* * * * *"),
        fields.get("timezone", "UTC"),
        fields.get("enabled", True),
        fields.get("payload", {"prompt": "p"}),
    )


class Instant:
    """A handler that answers at once, and knows how often it was asked for what."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.admitted: list[tuple[str, str]] = []

    async def start_session(self, invocation: RunInvocation) -> str:
        self.started.append(invocation.run_id)
        return f"session-of-{invocation.run_id}"

    async def admit_turn(self, invocation: RunInvocation, session_id: str) -> AdmittedTurn:
        self.admitted.append((invocation.run_id, session_id))
        return AdmittedTurn(f"turn-of-{invocation.run_id}", None)


class Held(Instant):
    """One whose calls wait until they are let go."""

    def __init__(self, *methods: str) -> None:
        super().__init__()
        self._methods = methods or ("start_session",)
        self.go = asyncio.Event()
        self.cancelled: list[str] = []

    async def start_session(self, invocation: RunInvocation) -> str:
        session = await super().start_session(invocation)
        await self._wait("start_session", invocation.run_id)
        return session

    async def admit_turn(self, invocation: RunInvocation, session_id: str) -> AdmittedTurn:
        turn = await super().admit_turn(invocation, session_id)
        await self._wait("admit_turn", invocation.run_id)
        return turn

    async def _wait(self, method: str, run_id: str) -> None:
        if method in self._methods:
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled.append(run_id)
                raise


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
