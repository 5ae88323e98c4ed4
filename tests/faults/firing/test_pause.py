"""Disable and delete while an operator knows nothing of them: nothing starts later than is promised."""

import asyncio

import pytest

from astrabox_scheduler_crds import labels
from tests.faults.firing.fired import PAUSE_VISIBLE, assert_fired, assert_not_fired
from tests.faults.history.check import assert_holds
from tests.faults.scenes.calls import first_calls
from tests.faults.scenes.minutes import MINUTE, minute_after, until_time
from tests.faults.scenes.runs import finished_because, run_name, runs_due_at, until_fired
from tests.faults.scenes.schedules import install, schedule, until_shared
from tests.faults.scenes.writes import creates
from tests.faults.stage.relay import Relay
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

ON, OFF, GONE = ([f"{kind}-{number}" for number in range(6)] for kind in ("on", "off", "gone"))


@pytest.mark.waits(100)
async def test_what_a_dead_watch_has_not_brought_does_not_fire(rig: Rig) -> None:
    """PA-04, WA-01: only the watch stands still: what was disabled or deleted meanwhile has no run."""
    async with Relay(rig.plane.url) as relay:
        await rig.start_operator("operator-1", env=relay.environment)
        await rig.start_hosts(1)
        door = rig.host("host-1")
        await install(rig, [schedule(each) for each in (*ON, *OFF, *GONE)])
        await until_shared(rig, [*ON, *OFF, *GONE])
        due = minute_after(rig, 22)
        frozen = 0
        for before in (17, 10):  # the second time for a watch that was just renewed at the first
            await until_time(rig, due - before)
            frozen += relay.freeze_quiet(6)
        assert frozen, "no connection was quiet: the watch was not found"
        rig.note(f"{frozen} quiet connections stand still")
        changed = rig.now()
        async with asyncio.TaskGroup() as group:
            for each in OFF:
                group.create_task(door.apply(schedule(each, enabled=False)))
            for each in GONE:
                group.create_task(door.delete(each))
        await until_fired(rig, ON, due, within=due + 30 - rig.now())
        await until_fired(rig, ON, due + MINUTE, within=due + MINUTE + 30 - rig.now())
        history = await rig.collect()
    told = [
        write.name
        for write in history.writes
        if write.resource == labels.SCHEDULE_PLURAL
        and write.subresource == "status"
        and changed < write.received < due
    ]
    assert not told, "the operator has heard of it before the due time, so that nothing was shown"
    assert_not_fired(history, [*OFF, *GONE], [due, due + MINUTE])
    assert_fired(history, ON, due, within=15)
    assert_fired(history, ON, due + MINUTE, within=15)
    assert_holds(history)


async def test_a_create_that_was_under_way_is_not_started_after_a_disable(rig: Rig) -> None:
    """PA-04: held between its confirmation and its create until the disable is done: it is cancelled."""
    await rig.start_operators(1)
    await rig.start_hosts(2)
    await install(rig, [schedule(each) for each in (*OFF, *GONE)])
    await until_shared(rig, [*OFF, *GONE])
    due = minute_after(rig, 4)
    await until_time(rig, due - 2)
    rig.arm("operator-1", "before:run-created", "wait")
    await rig.reached("operator-1", "before:run-created", within=20)

    async def all_but_one() -> bool:
        return len(await runs_due_at(rig, due)) == len(OFF) + len(GONE) - 1

    await rig.until(all_but_one, 20, "all other runs of the burst are there")
    (held,) = {run_name(each, due) for each in (*OFF, *GONE)} - (await runs_due_at(rig, due)).keys()
    for each in OFF:
        await rig.host("host-1").apply(schedule(each, enabled=False))
    for each in GONE:
        await rig.host("host-2").delete(each)
    done = rig.now()
    await until_time(rig, done + PAUSE_VISIBLE + 1)
    rig.release("operator-1", "before:run-created")
    await rig.until(lambda: held_is_there(rig, due, held), 20, "the held run is created")
    history = await rig.collect()
    assert finished_because(history.runs[held]) == ("Cancelled", "ScheduleDisabled")
    calls = first_calls(history)
    assert held not in calls
    others = {run_name(each, due) for each in (*OFF, *GONE)} - {held}
    assert others <= calls.keys()
    assert max(call.begun for call in calls.values()) <= done + PAUSE_VISIBLE
    assert len(creates(history)[held]) == 1
    assert_holds(history)


async def held_is_there(rig: Rig, due: float, name: str) -> bool:
    """Whether this run is stored."""
    return name in await runs_due_at(rig, due)
