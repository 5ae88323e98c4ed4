"""Keeps the processes of a rig running, as kubelets would, and knows which of them may be hit next."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Literal

import aiohttp

from tests.faults.history.facts import Role
from tests.faults.stage.clock import Clock
from tests.faults.stage.rig import Rig

State = Literal["down", "starting", "up", "hit", "ending"]
_BACKOFF: Final = 1.0
"""Seconds until a process that ended by itself is started again."""
_LOOK: Final = 0.2
_PROBE_PERIOD: Final = 10.0
_PROBE_FAILURES: Final = 3
_STOP_WITHIN: Final = 120.0
"""Far more than a stop may take: how long it took is the checker's matter, and a payload may block a host."""
_READY_WITHIN: Final = 400.0
_ROLLED_WITHIN: Final = 30.0


@dataclass(slots=True)
class Member:
    """One name, under which processes follow each other."""

    name: str
    role: Role
    state: State = "down"
    back_at: float = 0.0
    """Monotonic seconds at which it may be started; inf: not before somebody says so."""
    starting: asyncio.Task[None] | None = field(default=None)


class Crew:
    """Hosts and operators by name. `hit` of a member that is not up does nothing and says so."""

    def __init__(
        self,
        rig: Rig,
        hosts: Sequence[str],
        operators: Sequence[str],
        skews: Mapping[str, float],
    ) -> None:
        self.rig = rig
        self.counts: Counter[str] = Counter()
        """Ends and starts of processes, by kind."""
        self._clocks = {name: Clock.offset(seconds) for name, seconds in skews.items()}
        roles: list[tuple[Role, Sequence[str]]] = [("operator", operators), ("host", hosts)]
        self.members = {name: Member(name, role) for role, names in roles for name in names}
        self._keeper: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Start all, wait until they are ready, and start each again that ends, until the body ends.

        Operators are also probed, and ended politely when they say three times that they should be.
        """
        keeper = asyncio.create_task(self._keep(), name="crew")
        probes = [
            asyncio.create_task(self._probe(each), name=f"probe {each.name}")
            for each in self.members.values()
            if each.role == "operator"
        ]
        self._keeper = keeper
        try:
            await self.all_up()
            yield
        finally:
            starts = [each.starting for each in self.members.values() if each.starting]
            for task in (keeper, *probes, *starts):
                task.cancel()
            await asyncio.gather(keeper, *probes, *starts, return_exceptions=True)

    def names(self, role: Role) -> list[str]:
        """Every name of a role."""
        return [each.name for each in self.members.values() if each.role == role]

    def up(self, role: Role) -> list[str]:
        """Who is ready and not hit by anything that this crew knows of."""
        return [each.name for each in self.members.values() if each.role == role and self._is_up(each)]

    async def all_up(self, within: float = _READY_WITHIN) -> None:
        """Let everybody come back, and wait for it. Raises TimeoutError that names who does not."""
        for each in self.members.values():
            if each.state == "down":
                each.back_at = 0.0
        deadline = time.monotonic() + within
        while missing := [each.name for each in self.members.values() if not self._is_up(each)]:
            assert self._keeper is not None
            if self._keeper.done():
                self._keeper.result()
            if time.monotonic() > deadline:
                raise TimeoutError(f"not up within {within:.0f} s: {', '.join(missing)}")
            await asyncio.sleep(_LOOK)

    async def kill(self, name: str, away: float) -> bool:
        """SIGKILL; back after `away` seconds."""
        return await self._end_if_up(name, "kill", away)

    async def terminate(self, name: str, away: float) -> bool:
        """SIGTERM; `away` seconds after its end it is started again."""
        return await self._end_if_up(name, "terminate", away)

    async def roll(self, role: Role) -> None:
        """One after the other: ended politely, started again, ready; then the next."""
        for name in self.names(role):
            if await self.terminate(name, 0.0):
                with contextlib.suppress(AssertionError):  # the next one may go all the same
                    await self.rig.until(lambda: self._is_up(self.members[name]), _ROLLED_WITHIN)  # noqa: B023

    async def away(self, role: Role, action: str, seconds: float) -> None:
        """All of a role end now and none is started before `seconds` seconds have passed."""
        members = [each for each in self.members.values() if each.role == role]
        until = time.monotonic() + seconds
        async with asyncio.TaskGroup() as group:
            for each in members:
                if each.state != "down":
                    how = action if each.state == "up" else "kill"
                    group.create_task(self._end(each, how, float("inf")))
                each.back_at = float("inf")
        await asyncio.sleep(max(0.0, until - time.monotonic()))
        for each in members:
            each.back_at = 0.0

    @asynccontextmanager
    async def hit(self, name: str) -> AsyncIterator[bool]:
        """The body does something to a process that is up; it counts as hit until the body ends."""
        member = self.members[name]
        if not self._is_up(member):
            yield False
            return
        member.state = "hit"
        try:
            yield True
        finally:
            if member.state == "hit":
                member.state = "up"

    def alive(self, name: str) -> bool:
        """Whether its process runs, frozen or not."""
        self.rig.actors.look()
        return self._runs(name)

    def _runs(self, name: str) -> bool:
        """The same as of the last look."""
        lives = self.rig.journal.lives
        return any(life.name == name and life.end is None for life in reversed(lives))

    def _is_up(self, member: Member) -> bool:
        return member.state == "up" and self._runs(member.name)

    async def _end_if_up(self, name: str, how: str, away: float) -> bool:
        member = self.members[name]
        if not self._is_up(member):
            return False
        await self._end(member, how, away)
        return True

    async def _end(self, member: Member, how: str, away: float) -> None:
        member.state = "ending"
        starting, member.starting = member.starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
        try:
            if how == "kill":
                await self.rig.kill(member.name)
            else:
                await self.rig.terminate(member.name, within=_STOP_WITHIN)
            self.counts[f"{how} {member.role}"] += 1
        except RuntimeError:
            self.counts[f"died {member.role}"] += 1  # it was faster
        member.back_at = max(member.back_at, time.monotonic() + away)
        member.state = "down"

    async def _keep(self) -> None:
        while True:
            now = time.monotonic()
            self.rig.actors.look()
            for each in self.members.values():
                if each.state in ("up", "hit") and not self._runs(each.name):
                    self.counts[f"died {each.role}"] += 1
                    each.state, each.back_at = "down", max(each.back_at, now + _BACKOFF)
                if each.starting is not None and each.starting.done():
                    each.starting.result()
                    each.starting = None
                if each.state == "down" and each.back_at <= now and each.starting is None:
                    each.state, each.back_at = "starting", 0.0
                    each.starting = asyncio.create_task(self._start(each), name=f"start {each.name}")
            await asyncio.sleep(_LOOK)

    async def _probe(self, member: Member) -> None:
        """The liveness probe of the README. No answer is no failure: this machine is slow."""
        failures = 0
        while True:
            await asyncio.sleep(_PROBE_PERIOD)
            code, complaint = 0, ""
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, KeyError):
                async with asyncio.timeout(_PROBE_PERIOD):
                    code, complaint = await self.rig.health(member.name, "healthz")
            failing = code == HTTPStatus.SERVICE_UNAVAILABLE and member.state in ("up", "starting")
            failures = failures + 1 if failing else 0
            if failures >= _PROBE_FAILURES:
                self.rig.note(f"{member.name} is not alive by its own word: {complaint.strip()}")
                self.counts[f"unhealthy {member.role}"] += 1
                failures = 0
                await self._end(member, "terminate", 0.0)

    async def _start(self, member: Member) -> None:
        """Until it is ready; one that ends before is down again."""
        start = self.rig.start_host if member.role == "host" else self.rig.start_operator
        await start(member.name, clock=self._clocks.get(member.name), ready=False)
        self.counts[f"start {member.role}"] += 1
        while self.alive(member.name):
            with contextlib.suppress(AssertionError):  # it has ended, or takes long while its store is away
                await self.rig.ready(member.name)
                member.state = "up"
                return
        self.counts[f"ended unready {member.role}"] += 1
        member.state, member.back_at = "down", max(member.back_at, time.monotonic() + _BACKOFF)
