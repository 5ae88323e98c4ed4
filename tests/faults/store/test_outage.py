"""The API server, etcd, or both are killed and come back: nothing is lost, doubled or stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from astrabox.seams.scheduler import Schedule, ScheduledRun
from tests.faults.history.check import assert_holds
from tests.faults.history.facts import History, Object
from tests.faults.history.objects import FINISHED
from tests.faults.scenes.calls import step_counts, until_begun
from tests.faults.scenes.minutes import minute_after, until_time
from tests.faults.scenes.processes import start
from tests.faults.scenes.runs import (
    RUN_NOW,
    behaving,
    ended_as,
    enqueue,
    phase,
    run_name,
    runs,
    runs_of_deployment,
    until_fired,
    until_phase,
)
from tests.faults.scenes.schedules import ONCE_A_YEAR, apply_all, delete_all, schedule, schedules
from tests.faults.stage.rig import Rig
from tests.faults.store.refusal import refused

pytestmark = [pytest.mark.faults, pytest.mark.own_plane, pytest.mark.timeout(290)]

DOWN = 10.0
"""Seconds for which the store is away."""


async def down(rig: Rig, what: str) -> None:
    """Kill it."""
    if what != "etcd":
        await rig.kill_apiserver()
    if what != "apiserver":
        await rig.kill_etcd()


async def at_every_step(rig: Rig, host: str) -> list[str]:
    """Runs that begin now and are, some seconds later, everywhere between their claim and their end."""
    payloads = [behaving(start_session=f"hang:{wait}", admit_turn="hang:4") for wait in range(0, 14, 2)]
    payloads += [
        behaving(start_session="fail:2"),
        behaving(admit_turn="fail:1"),
        behaving(start_session="permanent"),
    ]
    return [name for payload in payloads for name in await enqueue(rig, host, payload)]


@pytest.mark.waits(100)
@pytest.mark.parametrize("what", ["etcd", "both"])
async def test_due_time_and_runs_in_progress_survive(rig: Rig, what: str) -> None:
    """RE-01, FI-14: killed over a due time with runs at every step: all are there once and end."""
    await start(rig, operators=2, hosts=2)
    rules = [
        schedule("plain"),
        schedule("slow", **behaving(start_session="hang:2")),
        schedule("fails", **behaving(start_session="fail:1")),
    ]
    await apply_all(rig, "host-1", [*rules, yearly("kept"), yearly("doomed")])
    due = minute_after(rig, 12)
    await until_time(rig, due - 9)
    hand = [*await at_every_step(rig, "host-1"), *await at_every_step(rig, "host-2")]
    await until_time(rig, due - 4)
    await down(rig, what)
    failed = await commands_meanwhile(rig)
    await until_time(rig, due - 4 + DOWN)
    await rig.restore()
    deployments = [rule.deployment_id for rule in rules]
    names = [run_name(each, due) for each in deployments]
    await until_fired(rig, deployments, due, within=60)
    await until_phase(rig, [*names, *hand], *FINISHED, within=90)
    await what_failed_did_not_happen(rig, set(failed))
    await delete_all(rig, "host-1", deployments)
    history = await rig.collect()
    assert ended_as(history, hand) == {"Succeeded": 2 * 9, "Failed": 2}
    assert ended_as(history, names) == {"Succeeded": 3}
    if "enqueue" in failed:
        never_started(history, runs_of_deployment(history, "unsaved"))
    assert_holds(history)


def yearly(deployment_id: str, number: int = 1) -> Schedule:
    """Not due in any test."""
    return schedule(deployment_id, ONCE_A_YEAR, n=number)


async def what_failed_did_not_happen(rig: Rig, failed: set[str]) -> None:
    """G9: after an error the old state holds, or is put back within a minute; what succeeded holds."""
    expected = {
        "kept": '{"n":1}' if "edit" in failed else '{"n":2}',
        "doomed": '{"n":1}' if "delete" in failed else None,
        "new": None if "new" in failed else '{"n":3}',
    }

    async def holds() -> bool:
        stored = await schedules(rig)
        return {
            name: stored[name]["spec"]["payload"] if name in stored else None for name in expected
        } == expected

    await rig.until(holds, 75, f"after {sorted(failed)} have failed, the schedules are {expected}")


async def commands_meanwhile(rig: Rig) -> dict[str, Exception]:
    """G9: what AstraBox asks for while the store is away: the errors of what failed, by command."""
    door = rig.host("host-1")
    asked: dict[str, Callable[[], Any]] = {
        "list": lambda: door.list_runs(RUN_NOW),
        "new": lambda: door.apply(yearly("new", 3)),
        "edit": lambda: door.apply(yearly("kept", 2)),
        "delete": lambda: door.delete("doomed"),
        "enqueue": lambda: door.enqueue("unsaved", {}),
    }
    errors = await asyncio.gather(*(refused(call) for call in asked.values()))
    return {name: error for name, error in zip(asked, errors, strict=True) if error is not None}


async def test_three_times_in_quick_succession(rig: Rig) -> None:
    """RE-01: the API server dies three times within seconds: every run that was saved ends, once."""
    await start(rig, operators=0, hosts=2)
    saved: list[str] = []
    for _ in range(3):
        saved += await at_every_step(rig, "host-1")
        await down(rig, "both")
        unsaved = await refused(lambda: rig.host("host-2").enqueue(RUN_NOW, {}))
        assert unsaved is not None
        await rig.restore()
        answer = await again(rig)
        saved.append(answer.run_id)
    await until_phase(rig, saved, *FINISHED, within=90)
    history = await rig.collect()
    assert ended_as(history, saved) == {"Succeeded": 3 * 9 + 3, "Failed": 3}
    never_started(history, [run for name, run in history.runs.items() if name not in saved])
    assert_holds(history)


def never_started(history: History, refused_runs: list[Object]) -> None:
    """G6: what AstraBox was told is not saved may be there, but has not run."""
    assert {phase(run) for run in refused_runs} <= {"Cancelled"}
    names = {run["metadata"]["name"] for run in refused_runs}
    assert not [call for call in history.calls if call.run_id in names]


async def again(rig: Rig) -> ScheduledRun:
    """As a user does who is told to try again."""
    answers: list[ScheduledRun] = []

    async def ask() -> bool:
        async def call() -> None:
            answers.append(await rig.host("host-2").enqueue(RUN_NOW, {}))

        return await refused(call) is None

    await rig.until(ask, 30, "run now is accepted again")
    return answers[0]


@pytest.mark.xdist_group("both-cores")
async def test_fifty_runs_are_taken_over_while_the_apiserver_restarts(rig: Rig) -> None:
    """RE-01: A with 50 calls under way is killed, the API server dies while B takes over: all 50 end."""
    await start(rig, operators=0, hosts=2)
    names = await enqueue(rig, "host-1", behaving("host-1", start_session="hang:600"), 50)
    await until_begun(rig, names, "start_session")
    await rig.kill("host-1")

    async def begun() -> bool:
        found = await runs(rig)
        return any(
            phase(found[name]) == "Succeeded" or found[name]["status"]["attempts"] > 1 for name in names
        )

    await rig.until(begun, 60, "host-2 takes over")
    await rig.kill_apiserver()
    await rig.start_apiserver()
    await until_phase(rig, names, "Succeeded", within=90)
    history = await rig.collect()
    for name in names:
        assert step_counts(history, name) == {"start_session": 2, "admit_turn": 1}, name
        # The third of one that was claimed, and not called, when the Lease ran out in a long restart.
        assert history.runs[name]["status"]["attempts"] in (2, 3)
    assert_holds(history)
