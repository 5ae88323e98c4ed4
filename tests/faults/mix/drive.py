"""Carries out a plan on a rig, heals everything, waits for rest and collects the history."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from astrabox.host_deployments import DeploymentRecords
from astrabox.host_wire import HostError
from astrabox.seams.scheduler import Schedule, SchedulerError
from tests.faults.history.facts import Role
from tests.faults.mix.crew import Crew
from tests.faults.mix.steps import SINGLE, WORKLOAD, Step
from tests.faults.scenes.minutes import minute_after, until_time
from tests.faults.stage.rig import Rig

_CALM: Final = 80.0
"""The time until operators have recovered from any fault (20 s, and up to 30 s more until they try a create
again), a Lease has run out and a due time is caught up (25 s)."""
_HEAL_PAUSE: Final = 3.0
"""So old is every mark of an apply before a host is started to reconcile: it then spares none."""


@dataclass(slots=True)
class Done:
    """How the steps went."""

    steps: Counter[str] = field(default_factory=Counter)
    """Carried out, by kind."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """What it was meant for was not there at that moment, by kind."""
    refused: Counter[str] = field(default_factory=Counter)
    """Commands that were answered by an error, by its type."""
    unanswered: int = 0


class Driver:
    """One plan on one rig."""

    def __init__(self, rig: Rig, crew: Crew, records: DeploymentRecords) -> None:
        self._rig = rig
        self._crew = crew
        self._records = records
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._outage = asyncio.Lock()
        self.done = Done()

    async def carry_out(self, steps: Sequence[Step]) -> None:
        """All steps: those of second 0 at once, then from the next whole minute each at its time."""
        async with asyncio.TaskGroup() as group:
            first = [group.create_task(self._step(step)) for step in steps if step.at == 0]
            begin = minute_after(self._rig, 0)
            await asyncio.gather(*first)
            self._rig.note(f"the plan begins at {begin:.0f}")
            for step in steps:
                if step.at > 0:
                    await until_time(self._rig, begin + step.at)
                    group.create_task(self._step(step))

    async def _step(self, step: Step) -> None:
        self._rig.note(_told(step))
        done = await self._carry_out(step)
        (self.done.steps if done else self.done.passed_over)[step.kind] += 1

    async def _carry_out(self, step: Step) -> bool:
        if step.kind in WORKLOAD:
            return await self._command(step)
        if step.kind in SINGLE:
            return await self._single(step)
        return await self._wide(step)

    async def _command(self, step: Step) -> bool:
        """One command at a time for a Deployment, as AstraBox's own record of it makes sure."""
        async with self._locks[step.target] if step.target else contextlib.nullcontext():
            up = self._crew.up("host")
            if not up:
                return False
            host = up[step.pick % len(up)]
            try:
                return await self._ask(host, step)
            except SchedulerError as error:
                self.done.refused[type(error).__name__] += 1
            except HostError as error:
                raise AssertionError(f"{host} has answered {step} by {error}") from error
            except (ConnectionError, TimeoutError):
                self.done.unanswered += 1  # the Deployment record tells what AstraBox goes on with
            return True

    async def _ask(self, host: str, step: Step) -> bool:
        door, record = self._rig.host(host), self._records.get(step.target)
        if step.kind == "reconcile":
            await door.reconcile()
        elif step.kind in ("create", "recreate"):
            await door.apply(Schedule(step.target, step.cron, step.zone, enabled=True, payload=step.payload))
        elif record is None:
            return False  # its create was refused, or it was deleted
        elif step.kind == "run-now":
            await door.enqueue(step.target, step.payload)
        elif step.kind == "replay":
            rows = await door.list_runs(step.target)
            if not rows:
                return False
            source = rows[step.pick % len(rows)]
            await door.enqueue(
                step.target, source.payload, trigger="replay", replayed_from_run_id=source.run_id
            )
        elif step.kind == "delete":
            await door.delete(step.target)
        else:
            await door.apply(_edited(record, step))
        return True

    async def _single(self, step: Step) -> bool:
        rig, crew, name = self._rig, self._crew, step.target
        if step.kind == "kill":
            return await crew.kill(name, step.seconds)
        if step.kind == "terminate":
            return await crew.terminate(name, step.seconds)
        async with crew.hit(name) as may:
            if may and step.kind == "rotate":
                async with self._outage:
                    await rig.rotate_token(name)
            elif may and step.kind == "freeze":
                with contextlib.suppress(RuntimeError):  # it ended a moment ago
                    rig.freeze(name)
                await asyncio.sleep(step.seconds)
                self._thaw(name)
            elif may and step.kind == "arm":
                await self._arm(step)
            elif may:
                await self._hinder(step)
        return may

    async def _arm(self, step: Step) -> None:
        rig, name = self._rig, step.target
        rig.arm(name, step.point, step.action)
        await asyncio.sleep(step.seconds)
        rig.disarm(name, step.point)
        if step.action == "wait":
            rig.release(name, step.point)
        elif step.action == "stop":
            rig.actors.look()
            self._thaw(name)

    def _thaw(self, name: str) -> None:
        try:
            self._rig.thaw(name)
        except RuntimeError:
            self._rig.journal.thaw(name)  # it has ended: its next life is not frozen

    async def _hinder(self, step: Step) -> None:
        proxy = self._rig.proxy(step.target)
        begin: Callable[[], Awaitable[None]] = {
            "cut": proxy.cut,
            "silence": proxy.silence,
            "swallow": proxy.swallow_answers,
            "slow": lambda: proxy.slow(1 + step.seconds % 3),
        }[step.kind]
        await begin()
        try:
            await asyncio.sleep(step.seconds)
        finally:
            await proxy.mend()

    async def _wide(self, step: Step) -> bool:
        rig, crew = self._rig, self._crew
        role: Role = "host" if step.kind in ("roll-hosts", "hosts-away") else "operator"
        if step.kind in ("roll-hosts", "roll-operators"):
            await crew.roll(role)
        elif step.action == "cut":
            await self._cut_hosts_off(step.seconds)
        elif step.kind in ("hosts-away", "operators-away"):
            await crew.away(role, step.action, step.seconds)
        elif step.kind in ("answer-429", "answer-500"):
            window = rig.answering_429 if step.kind == "answer-429" else rig.answering_500
            async with self._outage, window(list(crew.members)):
                await asyncio.sleep(step.seconds)
        else:
            async with self._outage:
                await self._restart(step)
        return True

    async def _cut_hosts_off(self, seconds: float) -> None:
        """All hosts that are up lose the API server at once, and nobody else does."""
        async with contextlib.AsyncExitStack() as stack:
            for name in self._crew.names("host"):
                if await stack.enter_async_context(self._crew.hit(name)):
                    proxy = self._rig.proxy(name)
                    stack.push_async_callback(proxy.mend)
                    await proxy.cut()
            await asyncio.sleep(seconds)

    async def _restart(self, step: Step) -> None:
        rig = self._rig
        kill, start = (
            (rig.kill_apiserver, rig.start_apiserver)
            if step.kind == "kill-apiserver"
            else (rig.kill_etcd, rig.start_etcd)
        )
        await kill()
        await asyncio.sleep(step.seconds)
        await start()

    async def heal(self) -> None:
        """All are up, and nothing happens for so long that every due time still open must become a run.

        One host is started anew meanwhile: it reconciles, and then what is stored equals AstraBox's records,
        whatever was refused or not answered before.
        """
        rig, crew = self._rig, self._crew
        await crew.all_up()
        calm_over = rig.now() + _CALM
        await asyncio.sleep(_HEAL_PAUSE)
        await crew.kill(crew.names("host")[-1], 0.0)
        await crew.all_up()
        await until_time(rig, calm_over)

    async def end_schedules(self) -> None:
        """Delete every Deployment: no further due time keeps the rest from coming."""
        hosts = self._crew.up("host")
        for number, record in enumerate(self._records.all()):
            await self._rig.host(hosts[number % len(hosts)]).delete(record.deployment_id)


def _edited(record: Schedule, step: Step) -> Schedule:
    match step.kind:
        case "edit-cron":
            return replace(record, cron=step.cron, timezone=step.zone)
        case "edit-payload":
            return replace(record, payload=step.payload)
        case "enable":
            return replace(record, enabled=True)
        case "disable":
            return replace(record, enabled=False)
        case _:
            raise AssertionError(step.kind)


def _told(step: Step) -> str:
    parts = [f"{step.at:.1f}", step.kind, step.target[:60], step.point, step.action]
    lasts = f"for {step.seconds:.1f} s" if step.seconds else ""
    return " ".join(part for part in (*parts, lasts) if part)
