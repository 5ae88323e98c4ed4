"""A write that was carried out looks failed, because its answer is lost and the connection then cut."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from astrabox.seams.scheduler import ScheduledRun, SchedulerUnavailable
from astrabox_scheduler_crds.names import deployment_key
from tests.faults.history.check import assert_holds
from tests.faults.history.facts import Object
from tests.faults.history.objects import FINISHED
from tests.faults.scenes.calls import assert_called_once, step_counts
from tests.faults.scenes.minutes import minute_after
from tests.faults.scenes.objects import status
from tests.faults.scenes.processes import start
from tests.faults.scenes.runs import RUN_NOW, behaving, ended_as, enqueue, run_name, runs, until_phase
from tests.faults.scenes.schedules import (
    ONCE_A_YEAR,
    apply_all,
    cron_at,
    delete_all,
    schedule,
    schedules,
    until_settled_to,
)
from tests.faults.stage.rig import Rig
from tests.faults.store.refusal import refused

pytestmark = [pytest.mark.faults, pytest.mark.timeout(290)]

Arrived = Callable[[], Awaitable[bool]]
HELD = "wait-connected"
"""A write that needed a new connection would not arrive: its handshake is swallowed as well."""


@asynccontextmanager
async def answer_lost(rig: Rig, process: str, point: str, arrived: Arrived) -> AsyncIterator[None]:
    """The write at `point` is carried out, its answer swallowed, the connection cut; then all is mended.

    The point is armed with HELD. The body is entered when the write has arrived and only the store knows.
    """
    await rig.reached(process, f"before:{point}", within=90)
    await rig.proxy(process).swallow_answers()
    rig.release(process, f"before:{point}")
    await rig.until(arrived, 30, f"the write at {point} arrives")
    yield
    await rig.proxy(process).cut()
    await rig.proxy(process).mend()


def status_of(rig: Rig, names: list[str], holds: Callable[[Object], bool]) -> Arrived:
    """Whether the first of these runs that is told of has such a status."""

    async def arrived() -> bool:
        found = await runs(rig)
        return any(holds(status(found[name])) for name in names if name in found)

    return arrived


async def test_no_step_of_a_run_is_repeated_for_a_lost_answer(rig: Rig) -> None:
    """RE-11: claim, Session, turn and failure are saved once; no step is called again."""
    await start(rig, operators=0, hosts=1)
    points: dict[str, tuple[dict[str, object], Callable[[Object], bool]]] = {
        "attempt-begun": ({}, lambda status: bool(status.get("attempts"))),
        "session-saved": ({}, lambda status: bool(status.get("sessionId"))),
        "turn-saved": ({}, lambda status: bool(status.get("turnId"))),
        "failure-saved": (behaving(start_session="fail:1"), lambda status: status.get("phase") == "Retrying"),
    }
    ended: dict[str, str] = {}
    for point, (payload, holds) in points.items():
        rig.arm("host-1", f"before:{point}", HELD)
        (ended[point],) = await enqueue(rig, "host-1", payload)
        async with answer_lost(rig, "host-1", point, status_of(rig, [ended[point]], holds)):
            pass
        await until_phase(rig, [ended[point]], *FINISHED, within=60)
    history = await rig.collect()
    assert set(history.runs) == set(ended.values())
    assert ended_as(history, ended.values()) == {"Succeeded": len(points)}
    for point, name in ended.items():
        again = 2 if point == "failure-saved" else 1
        assert step_counts(history, name) == {"start_session": again, "admit_turn": 1}, point
        assert history.runs[name]["status"]["attempts"] == again, point
    assert_holds(history)


@pytest.mark.waits(70)
async def test_run_of_a_due_time_whose_create_looks_failed(rig: Rig) -> None:
    """G2: both operators lose the answer to a create: one run for each due time, dispatched once."""
    await start(rig, operators=2, hosts=1)
    names = [f"d{number}" for number in range(12)]
    due = minute_after(rig, 15)
    await apply_all(rig, "host-1", [schedule(name, cron_at(due)) for name in names])
    wanted = [run_name(name, due) for name in names]
    for operator in ("operator-1", "operator-2"):
        rig.arm(operator, "before:run-created", HELD)
    lost = [
        asyncio.create_task(lose_a_create(rig, operator, due)) for operator in ("operator-1", "operator-2")
    ]
    done, pending = await asyncio.wait(lost, timeout=max(0.0, due + 30 - rig.now()))
    for task in pending:
        task.cancel()  # all schedules are the other one's share
    assert done, "no operator has reached a create"
    await asyncio.gather(*done)
    await until_phase(rig, wanted, "Succeeded", within=60)
    await until_settled_to(rig, names, due, within=30)
    await delete_all(rig, "host-1", names)
    history = await rig.collect()
    assert_called_once(history, wanted)
    assert_holds(history)


async def lose_a_create(rig: Rig, operator: str, due: float) -> None:
    """One create of this operator is carried out and looks failed."""
    await rig.reached(operator, "before:run-created", within=120)
    before = set(await runs(rig))

    async def arrived() -> bool:
        return bool(set(await runs(rig)) - before)

    async with answer_lost(rig, operator, "run-created", arrived):
        assert rig.now() >= due


async def test_run_now_whose_create_looks_failed(rig: Rig) -> None:
    """G6: the answer names the run that exists; there is one run per enqueue."""
    await start(rig, operators=0, hosts=2)
    asked = await lost_run_now(rig)
    async with answer_lost(rig, "host-1", "run-created", there(rig)):
        assert not asked.done()
    answer = await asked
    await until_phase(rig, [answer.run_id], "Succeeded", within=60)
    history = await rig.collect()
    assert set(history.runs) == {answer.run_id}
    assert_called_once(history, [answer.run_id])
    assert_holds(history)


async def test_run_now_that_is_refused_leaves_nothing_behind(rig: Rig) -> None:
    """G6, G9: AstraBox is told that it was not saved: it does not start here or elsewhere, nor later."""
    await start(rig, operators=0, hosts=2)
    asked = await lost_run_now(rig)
    async with answer_lost(rig, "host-1", "run-created", there(rig)):
        await rig.proxy("host-1").cut()
        assert await refused(lambda: asked)
    (lost,) = await runs(rig)
    await until_phase(rig, [lost], "Cancelled", within=30)
    (again,) = await enqueue(rig, "host-1", {"n": 1})
    await until_phase(rig, [again], "Succeeded", within=30)
    history = await rig.collect()
    assert set(history.runs) == {lost, again}
    assert {call.run_id for call in history.calls} == {again}
    assert_holds(history)


async def test_run_now_that_is_refused_beyond_the_lease(rig: Rig) -> None:
    """G2, RE-01: what a process that stays cut off has saved stays: it runs once, elsewhere."""
    await start(rig, operators=0, hosts=2)
    asked = await lost_run_now(rig)
    async with answer_lost(rig, "host-1", "run-created", there(rig)):
        assert await refused(lambda: asked)
        (lost,) = await runs(rig)
        await until_phase(rig, [lost], "Succeeded", within=40)
    history = await rig.collect()
    assert set(history.runs) == {lost}
    assert_called_once(history, [lost])
    assert {call.host for call in history.calls} == {"host-2"}
    assert_holds(history)


async def lost_run_now(rig: Rig) -> asyncio.Future[ScheduledRun]:
    """Ask host-1 for a run, which is held before it is created."""
    rig.arm("host-1", "before:run-created", HELD)
    return asyncio.ensure_future(rig.host("host-1").enqueue(RUN_NOW, {"n": 1}))


def there(rig: Rig) -> Arrived:
    """Whether there is any run."""

    async def arrived() -> bool:
        return bool(await runs(rig))

    return arrived


async def test_schedule_whose_write_looks_failed(rig: Rig) -> None:
    """G9: create, edit and delete are found out: AstraBox is told that they were done, and they were."""
    await rig.start_hosts(1)
    door = rig.host("host-1")
    rule = schedule("d", ONCE_A_YEAR, n=1)
    edited = schedule("d", ONCE_A_YEAR, n=2, enabled=False)
    steps: list[tuple[str, Callable[[], Awaitable[None]], str | None]] = [
        ("schedule-created", lambda: door.apply(rule), '{"n":1}'),
        ("schedule-updated", lambda: door.apply(edited), '{"n":2}'),
        ("schedule-deleted", lambda: door.delete("d"), None),
    ]
    for point, command, payload in steps:
        rig.arm("host-1", f"before:{point}", HELD)
        asked = asyncio.ensure_future(command())
        async with answer_lost(rig, "host-1", point, stored_as(rig, payload)):
            assert not asked.done()
        await asked
        assert await payload_of(rig) == payload, point
    assert_holds(await rig.collect())


@pytest.mark.parametrize("command", ["create", "edit", "delete"])
async def test_schedule_of_a_refused_command_is_put_back(rig: Rig, command: str) -> None:
    """G9: the answer is lost for longer than AstraBox waits: it is told so, and the old state comes back."""
    await rig.start_hosts(1)
    door = rig.host("host-1")
    rule, edited = (schedule("d", ONCE_A_YEAR, n=n) for n in (1, 2))
    if command != "create":
        await door.apply(rule)
    before = await payload_of(rig)
    point = {"create": "schedule-created", "edit": "schedule-updated", "delete": "schedule-deleted"}[command]
    rig.arm("host-1", f"before:{point}", HELD)
    asked = asyncio.ensure_future(door.delete("d") if command == "delete" else door.apply(edited))
    written = None if command == "delete" else '{"n":2}'
    async with answer_lost(rig, "host-1", point, stored_as(rig, written)):
        with pytest.raises(SchedulerUnavailable):
            await asked
        assert await payload_of(rig) == written, "the write was to be carried out"
    await rig.until(stored_as(rig, before), 90, "the old state is back")
    assert_holds(await rig.collect())


def stored_as(rig: Rig, payload: str | None) -> Arrived:
    """Whether the schedule has this payload, None: whether there is none."""

    async def holds() -> bool:
        return await payload_of(rig) == payload

    return holds


async def payload_of(rig: Rig) -> str | None:
    """The payload of the schedule of `d`, None where there is none."""
    found = (await schedules(rig)).get(deployment_key("d"))
    return None if found is None else str(found["spec"]["payload"])
