"""Hosts and operators as processes in one namespace: what may be done to them, and what they leave."""

from __future__ import annotations

import asyncio
import inspect
import secrets
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

from tests.faults.history.facts import Call, History
from tests.faults.stage import refusals
from tests.faults.stage.actors import Actors, HealthPage
from tests.faults.stage.admin import SCHEDULER_API, Admin
from tests.faults.stage.audit import audit_position
from tests.faults.stage.clock import Clock
from tests.faults.stage.collecting import Beginning, collect, unfinished
from tests.faults.stage.doors import Door
from tests.faults.stage.identities import Identities
from tests.faults.stage.journal import Journal, LifeSoFar
from tests.faults.stage.outages import Outages
from tests.faults.stage.plane import Plane
from tests.faults.stage.points import armed_file, check_action, check_point
from tests.faults.stage.proxies import Proxies, Proxy
from tests.faults.stage.records import read_calls
from tests.faults.stage.revisions import store_revision
from tools.controlplane.processes import Processes

Predicate = Callable[[], bool | Awaitable[bool]]
_LEASES = "/apis/coordination.k8s.io/v1"
_EVENTS = "/apis/events.k8s.io/v1"
_APIS = {"runinvocations": SCHEDULER_API, "deploymentschedules": SCHEDULER_API, "leases": _LEASES}


class Rig(Outages):
    """A stage for one test: `async with Rig.open(plane) as rig`. Times are true seconds since the epoch."""

    def __init__(self, plane: Plane, seed: int, settings: Mapping[str, str]) -> None:
        self.journal = Journal()
        super().__init__(plane, self.journal)
        self.seed = seed
        self.settings = settings
        self.namespace = f"faults-{secrets.token_hex(4)}"
        self._stack = AsyncExitStack()
        self._operators_seen = False

    @classmethod
    def open(cls, plane: Plane, *, seed: int = 0, settings: Mapping[str, str] | None = None) -> Self:
        """`settings`: ASTRABOX_SCHEDULER_* variables; each goes to the processes whose prefix it has."""
        return cls(plane, seed, settings or {})

    async def __aenter__(self) -> Self:
        await self.restore()
        async with AsyncExitStack() as stack:
            await self._set_up(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            await self._stack.aclose()
        finally:
            await self.restore()

    async def _set_up(self, stack: AsyncExitStack) -> None:
        processes = await asyncio.to_thread(Processes, "astrabox-faults-")
        stack.callback(processes.close)
        self._admin = await stack.enter_async_context(Admin(self.plane))
        body = {"metadata": {"name": self.namespace}}
        await self._admin.create("/api/v1/namespaces", body)
        identities = Identities(self._admin, self.namespace, processes.directory, self.plane.ca_file)
        await identities.install_roles()
        proxies = Proxies(processes, self.plane.url)
        await proxies.start()
        port = urlsplit(self.plane.url).port or 0
        self._identities = identities
        self.actors = Actors(
            processes=processes,
            identities=identities,
            proxies=proxies,
            journal=self.journal,
            settings=self.settings,
            direct_port=port,
        )
        stack.callback(self.actors.close)
        self._beginning = Beginning(
            at=time.time(),
            audit=audit_position(self.plane.audit_folder),
            revision=await store_revision(self.plane.etcd_url),
        )

    # Processes

    async def start_operators(self, count: int, **options: Any) -> list[str]:
        """Start so many more, named operator-1 and so on, side by side; returns when they are ready."""
        return await self._start_many("operator", count, self.start_operator, options)

    async def start_hosts(self, count: int, **options: Any) -> list[str]:
        """Start so many more, named host-1 and so on, side by side; returns when they are ready."""
        await self._pretend_an_operator_was_there()
        return await self._start_many("host", count, self.start_host, options)

    async def start_operator(
        self,
        name: str,
        *,
        clock: Clock | None = None,
        env: Mapping[str, str] | None = None,
        proxied: bool = True,
        ready: bool = True,
    ) -> None:
        """Start one, again if it has ended. `ready`: wait until /readyz answers 200."""
        life = await self.actors.start(name, "operator", clock, env or {}, proxied=proxied)
        if ready:
            await self.ready(name, life)
            self._operators_seen = True

    async def start_host(
        self,
        name: str,
        *,
        clock: Clock | None = None,
        env: Mapping[str, str] | None = None,
        proxied: bool = True,
        ready: bool = True,
    ) -> None:
        """Start one, again if it has ended. `ready`: wait until it takes commands."""
        await self._pretend_an_operator_was_there()
        life = await self.actors.start(name, "host", clock, env or {}, proxied=proxied)
        if ready:
            await self.ready(name, life)

    async def ready(self, name: str, life: LifeSoFar | None = None) -> None:
        """Wait for one that was started with ready=False. Raises AssertionError with its log."""
        await self.actors.ready(life or self.journal.latest(name))

    async def kill(self, name: str) -> None:
        """SIGKILL; returns when it is gone."""
        await self.actors.gone(self.actors.send(name, signal.SIGKILL), within=10)

    async def terminate(self, name: str, within: float = 32.0) -> int:
        """SIGTERM; the exit code. Raises AssertionError if it takes longer."""
        life = self.actors.send(name, signal.SIGTERM)
        life.asked_to_end = life.asked_to_end or time.time()
        return await self.actors.gone(life, within)

    def ask_to_end(self, name: str) -> None:
        """SIGTERM, without waiting; see `ended`."""
        life = self.actors.send(name, signal.SIGTERM)
        life.asked_to_end = life.asked_to_end or time.time()

    async def ended(self, name: str, within: float = 32.0) -> int:
        """Wait until it has ended by itself, at a point, or as it was asked; the exit code."""
        return await self.actors.gone(self.journal.latest(name), within)

    def freeze(self, name: str) -> None:
        """SIGSTOP. Noted once it was sent: what has ended meanwhile is not frozen, nor is its next life."""
        self.actors.send(name, signal.SIGSTOP)
        self.journal.freeze(name)

    def thaw(self, name: str) -> None:
        """SIGCONT, also for one that a point has stopped."""
        self.actors.send(name, signal.SIGCONT)
        self.journal.thaw(name)

    def set_clock(self, name: str, seconds: float) -> None:
        """Let the clock of a process that was started with one be ahead by so much from now on."""
        self.note(f"the clock of {name} is {seconds:+g} s")
        with self.journal.hindered(name):
            self.actors.clocks[name].jump(seconds)

    # Points

    def arm(self, name: str, point: str, action: str) -> None:
        """Let a process `kill`, `term`, `stop` itself at a point, or `wait`; `kill:3`: at the third time.

        `wait-connected`, before a write: it waits with connections open that the write can go over when
        no new one is answered.
        """
        armed = armed_file(self.actors.points(name), check_point(point))
        armed.parent.mkdir(exist_ok=True)
        for suffix in (".reached", ".release"):
            armed.with_name(armed.name + suffix).unlink(missing_ok=True)
        draft = armed.with_name(f"{armed.name}.draft")
        draft.write_text(check_action(action))
        draft.replace(armed)

    def disarm(self, name: str, point: str) -> None:
        """Take back what was armed and not reached."""
        armed_file(self.actors.points(name), check_point(point)).unlink(missing_ok=True)

    async def reached(self, name: str, point: str, within: float = 30.0) -> None:
        """Wait until a process has come to an armed point."""
        armed = armed_file(self.actors.points(name), check_point(point))
        reached = armed.with_name(f"{armed.name}.reached")
        await self.until(reached.exists, within, f"{name} reaches {point}", every=0.01)
        if reached.read_text().startswith("stop"):
            # Else a SIGCONT that comes before its SIGSTOP would leave it stopped.
            await self.until(lambda: self.actors.stopped(name), 10, f"{name} has stopped", every=0.01)
        self.note(f"{name} has reached {point}")

    def release(self, name: str, point: str) -> None:
        """Let a process go on that waits at a point."""
        armed = armed_file(self.actors.points(name), check_point(point))
        armed.with_name(f"{armed.name}.release").touch()
        self.note(f"{name} may go on from {point}")

    # Network, tokens, refusals

    def proxy(self, name: str) -> Proxy:
        """The way of one process to the API server; what hinders it is noted. KeyError if it has none."""
        return self.actors.proxies[name]

    @contextmanager
    def hindered(self, *names: str) -> Iterator[None]:
        """Note that these processes are hindered meanwhile in a way that the rig does not see."""
        with self.journal.hindered(*names):
            yield

    async def rotate_token(self, name: str) -> None:
        """Give a process another token and revoke the old one; returns when that is refused (about 10 s)."""
        with self.hindered(name):
            await self._identities.rotate(name)
        self.note(f"the token of {name} is another one")

    @asynccontextmanager
    async def answering_401(self, name: str) -> AsyncIterator[None]:
        """Every request of this process is refused for its token; afterwards it finds another one."""
        with self.hindered(name):
            await self._identities.revoke(name)
            yield
            await self._identities.issue(name)

    @asynccontextmanager
    async def answering_429(self, names: Sequence[str]) -> AsyncIterator[None]:
        """The API server rejects every request of these processes."""
        with self.hindered(*names):
            async with refusals.too_many_requests(self._admin, self._identities, self.namespace, names):
                yield

    @asynccontextmanager
    async def answering_500(self, names: Sequence[str]) -> AsyncIterator[None]:
        """The API server fails at every write of these processes to schedules and runs."""
        with self.hindered(*names):
            async with refusals.internal_errors(self._admin, self._identities, self.namespace, names):
                yield

    # Commands, questions

    def host(self, name: str, within: float = 5.0) -> Door:
        """The way into a host. A command waits so long at most until the host takes commands."""
        return Door(
            name, self.actors.socket(name), self.actors.deployments, self.journal.commands.append, within
        )

    async def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002
        """Output of kubectl as the administrator, in this namespace."""
        return await asyncio.to_thread(self.plane.kubectl, "-n", self.namespace, *arguments, input=input)

    async def objects(self, plural: str) -> list[dict[str, Any]]:
        """All runinvocations, deploymentschedules or leases of the namespace; around all proxies."""
        return await self._admin.items(self.namespace, plural, _APIS[plural])

    async def events(self) -> list[dict[str, Any]]:
        """All Events of the namespace."""
        return await self._admin.items(self.namespace, "events", _EVENTS)

    async def health(self, name: str, page: HealthPage) -> tuple[int, str]:
        """Status code and text of what an operator says of itself; 0 if nobody listens."""
        return await self.actors.health(name, page)

    def calls(self) -> list[Call]:
        """The handler calls so far, in order of their begin."""
        names = {life.name for life in self.journal.lives if life.role == "host"}
        found = [call for name in names for call in read_calls(self.actors.calls(name))]
        return sorted(found, key=lambda call: call.begun)

    def now(self) -> float:
        """True seconds since the epoch."""
        return time.time()

    def note(self, text: str) -> None:
        """Add a line to the timeline."""
        self.journal.note(text)

    async def until(
        self, predicate: Predicate, within: float, what: str = "it", every: float | None = None
    ) -> None:
        """Ask until `predicate` holds, sync or async. Raises AssertionError with the timeline's end.

        Every 0.1 s, or every 0.5 s what is async: that lists objects, which costs the API server more
        than all that the product asks of it.
        """
        deadline = time.monotonic() + within
        while True:
            answer = predicate()
            pause = every or 0.1
            if inspect.isawaitable(answer):
                answer, pause = await answer, every or 0.5
            if answer:
                return
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {within:g} s: {what}\n{self.timeline()}")
            await asyncio.sleep(pause)

    def timeline(self, lines: int = 30, log_lines: int = 8) -> str:
        """The last lines of what was done, and of every process's log."""
        self.actors.look()
        notes = sorted(self.journal.notes)[-lines:]
        told = [f"{at - self._beginning.at:8.2f} s  {text}" for at, text in notes]
        names = dict.fromkeys(life.name for life in self.journal.lives)
        logs = [f"{name}:\n{self.actors.log(name, log_lines)}" for name in names]
        return "\n".join([f"SEED={self.seed} make faults", *told, *logs])

    async def collect(self, settle: float = 60.0) -> History:
        """Wait until no run is unfinished (so many seconds at most), end nothing, and tell what there was."""
        deadline = time.monotonic() + settle
        while await unfinished(self._admin, self.namespace):
            if time.monotonic() > deadline:
                break
            await asyncio.sleep(0.25)
        return await collect(self, self._admin, self._beginning)

    async def served(self) -> None:
        """Wait until schedules and runs can be read."""
        async with Admin(self.plane) as admin:
            for plural in ("deploymentschedules", "runinvocations"):
                await admin.items("default", plural)

    async def _start_many(
        self, role: str, count: int, start: Callable[..., Awaitable[None]], options: Mapping[str, Any]
    ) -> list[str]:
        used = {life.name for life in self.journal.lives}
        numbers = range(1, len(used) + count + 1)
        names = [name for name in (f"{role}-{n}" for n in numbers) if name not in used][:count]
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(_awaited(start(name, **options)))
        return names

    async def _pretend_an_operator_was_there(self) -> None:
        """Hosts refuse to start where no operator was ever installed; in a test without one, one was."""
        if self._operators_seen:
            return
        self._operators_seen = True
        lease = {
            "metadata": {"name": "operator-of-old", "labels": {"scheduler.astrabox.io/role": "operator"}},
            "spec": {
                "leaseDurationSeconds": 15,
                "acquireTime": "2020-01-01T00:00:00.000000Z",
                "renewTime": "2020-01-01T00:00:05.000000Z",
            },
        }
        await self._admin.create(f"{_LEASES}/namespaces/{self.namespace}/leases", lease)


class OpenRig(Protocol):
    """The fixture that opens a rig with settings of the test's own."""

    async def __call__(self, settings: Mapping[str, str] | None = None) -> Rig:
        """See `Rig.open`."""
        ...


async def _awaited(work: Awaitable[None]) -> None:
    await work
