"""The story: what AstraBox asks for, and what is then to be seen."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from astrabox.host_client import HostClient
from astrabox.seams.scheduler import Schedule, ScheduledRun
from astrabox_scheduler_crds.labels import DELETED_LABEL
from tools.demo.screen import Screen
from tools.demo.stage import HOSTS, OPERATORS, Stage

DEPLOYMENT = "nightly-report"
FIRST = {"agent": "reporter", "prompt": "Summarise yesterday's tickets", "temperature": 1.0}
SECOND = {"agent": "reporter", "prompt": "Summarise them in one sentence", "temperature": 0.2}
_PAUSE_SECONDS = 5.0
"""What the provider declares: so long after a disable a run may still start."""


class Story:
    """The acts in their order. Each checks what it shows."""

    def __init__(self, stage: Stage, screen: Screen, one: HostClient, two: HostClient) -> None:
        self._stage = stage
        self._screen = screen
        self._one = one
        self._two = two

    async def tell(self) -> None:
        """All acts; about two and a half minutes, most of it waiting for two due times."""
        due_run = await self._due_fire()
        await self._run_now()
        await self._edit_and_replay(due_run)
        await self._disable()
        await self._delete()

    async def _due_fire(self) -> ScheduledRun:
        screen = self._screen
        screen.act(f"1  AstraBox saves the Deployment {DEPLOYMENT}: every minute, zone Europe/Berlin")
        await self._one.apply(self._schedule(FIRST))
        screen.say(f"written through {HOSTS[0]}; both operators hold it, both hosts could run it")
        with screen.waiting("waiting for the next whole minute", 60 - time.time() % 60):
            run = await self._finished(lambda runs: runs[0] if runs else None, within=75)
            await self._until_recorded(run.run_id)
        assert run.scheduled_for is not None
        screen.say(f"{run.scheduled_for:%H:%M:%S}.000  due (UTC), run {run.run_id}")
        self._tell_calls(run.run_id)
        seen = [int(self._stage.metric(name, "astrabox_scheduler_operator_schedules")) for name in OPERATORS]
        runs = [each for each in await self._runs() if each.scheduled_for == run.scheduled_for]
        screen.check(
            holds=len(runs) == 1 and all(seen),
            claim="one due time, two operators: exactly one run",
            seen=f"{len(runs)} run; schedules held: {OPERATORS[0]} {seen[0]}, {OPERATORS[1]} {seen[1]}",
        )
        calls = self._calls(run.run_id)
        screen.check(holds=calls == ["start_session", "admit_turn"], claim="both calls, in order, each once")
        screen.check(holds=run.payload == FIRST, claim="the run has the payload as AstraBox gave it")
        for kind in ("dsched", "runinv"):
            screen.show(f"kubectl get {kind}", self._stage.kubectl("get", kind))
        return run

    async def _run_now(self) -> None:
        screen = self._screen
        screen.act(f"2  Run now, asked of {HOSTS[1]}")
        before = self._next_due()
        queued = await self._two.enqueue(DEPLOYMENT, FIRST)
        run = await self._finished(_by_id(queued.run_id))
        screen.say(f"{queued.run_id} was saved as {queued.status}, then ran")
        screen.check(
            holds=run.status == "completed" and run.trigger == "manual", claim="run now runs at once"
        )
        after = self._next_due()
        holds = before == after or datetime.fromisoformat(before) <= datetime.now(UTC)
        screen.check(holds=holds, claim="it changes no time rule", seen=f"next due {after}")

    async def _edit_and_replay(self, source: ScheduledRun) -> None:
        screen = self._screen
        screen.act("3  AstraBox edits the prompt, then replays the first run")
        await self._one.apply(self._schedule(SECOND))
        queued = await self._one.enqueue(
            DEPLOYMENT, source.payload, trigger="replay", replayed_from_run_id=source.run_id
        )
        run = await self._finished(_by_id(queued.run_id))
        screen.say(f"replayed {run.replayed_from_run_id} as {run.run_id}")
        prompts = [json.dumps(each["prompt"]) for each in (run.payload, SECOND)]
        screen.say(f"prompt of the replay: {prompts[0]}; of the Deployment now: {prompts[1]}")
        screen.check(
            holds=run.status == "completed"
            and run.payload == FIRST
            and run.replayed_from_run_id == source.run_id,
            claim="a replay has the stored payload of its source",
        )
        kept = next(each for each in await self._runs() if each.run_id == source.run_id)
        screen.check(holds=kept.payload == FIRST, claim="an edit rewrites no run that exists")

    async def _disable(self) -> None:
        screen = self._screen
        screen.act("4  AstraBox disables it")
        await self._two.apply(self._schedule(SECOND, enabled=False))
        disabled = datetime.now(UTC)
        due = disabled.replace(second=0, microsecond=0) + timedelta(minutes=1)
        screen.say(f"disabled at {disabled:%H:%M:%S}; the next due time would be {due:%H:%M:%S} UTC")
        wait = (due - disabled).total_seconds() + _PAUSE_SECONDS
        with screen.waiting(f"waiting until {due + timedelta(seconds=_PAUSE_SECONDS):%H:%M:%S}", wait):
            await asyncio.sleep(wait)
        limit = disabled.timestamp() + _PAUSE_SECONDS
        started = [
            call for call in self._stage.calls() if call["trigger"] == "schedule" and call["t"] > limit
        ]
        later = [
            run for run in await self._runs() if run.scheduled_for is not None and run.scheduled_for >= due
        ]
        screen.check(holds=not started and not later, claim="after a disable nothing more fires")
        screen.show("kubectl get dsched", self._stage.kubectl("get", "dsched"))

    async def _delete(self) -> None:
        screen = self._screen
        screen.act("5  AstraBox deletes it")
        before = [run.run_id for run in await self._runs()]
        await self._one.delete(DEPLOYMENT)
        left = self._stage.kubectl("get", "dsched", "-l", f"!{DELETED_LABEL}", "-o", "name").split()
        screen.check(holds=not left, claim="the schedule is gone, but for a mark that keeps older lists out")
        runs = await self._runs()
        screen.check(
            holds=[run.run_id for run in runs] == before and all(run.status == "completed" for run in runs),
            claim="its history stays, and AstraBox gets it newest first",
            seen=f"{len(runs)} runs: {', '.join(run.trigger for run in runs)}",
        )
        screen.say("kubectl can only sort the other way round:")
        oldest_first = "--sort-by=.spec.createdBy.at"
        screen.show(f"kubectl get runinv {oldest_first}", self._stage.kubectl("get", "runinv", oldest_first))

    def _schedule(self, payload: dict[str, Any], *, enabled: bool = True) -> Schedule:
        return Schedule(DEPLOYMENT, "* * * * *", "Europe/Berlin", enabled, payload)

    async def _runs(self) -> list[ScheduledRun]:
        return await self._two.list_runs(DEPLOYMENT, limit=200)

    async def _finished(
        self, choose: Callable[[list[ScheduledRun]], ScheduledRun | None], within: float = 30
    ) -> ScheduledRun:
        """The chosen run once its dispatch has ended. Raises RuntimeError when that takes too long."""
        limit = time.monotonic() + within
        while time.monotonic() < limit:
            run = choose(await self._runs())
            if run is not None and run.status in ("completed", "failed", "cancelled"):
                return run
            if failure := self._stage.failure():
                raise RuntimeError(failure)
            await asyncio.sleep(0.1)
        raise RuntimeError(f"no run has ended within {within:.0f} s: {self._stage.kubectl('get', 'runinv')}")

    async def _until_recorded(self, run_id: str) -> None:
        while len(self._calls(run_id)) < 2:  # noqa: PLR2004, ASYNC110 - both calls; the record is a file
            await asyncio.sleep(0.05)

    def _calls(self, run_id: str) -> list[str]:
        return [
            each["call"]
            for each in self._stage.calls()
            if each["run_id"] == run_id and each["phase"] == "end"
        ]

    def _tell_calls(self, run_id: str) -> None:
        for each in self._stage.calls():
            if each["run_id"] == run_id and each["phase"] == "end":
                at = datetime.fromtimestamp(each["t"], UTC)
                result = each.get("turn_id") or each.get("session_id")
                self._screen.say(f"{at:%H:%M:%S.%f}"[:-3] + f"  {each['host']}  {each['call']} -> {result}")

    def _next_due(self) -> str:
        return self._stage.kubectl("get", "dsched", DEPLOYMENT, "-o", "jsonpath={.status.nextDueTime}")


def _by_id(run_id: str) -> Callable[[list[ScheduledRun]], ScheduledRun | None]:
    return lambda runs: next((run for run in runs if run.run_id == run_id), None)
