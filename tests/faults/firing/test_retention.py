"""A history of one run, and operators whose clocks differ: a due time whose run is gone stays settled."""

import pytest

from tests.faults.firing.fired import LOADED, TAKEN_OVER, assert_fired
from tests.faults.firing.shares import operators, shared_out, start_operators
from tests.faults.history.check import assert_holds
from tests.faults.scenes.minutes import MINUTE, minute_after, minutes_between, until_time
from tests.faults.scenes.processes import operator_settings
from tests.faults.scenes.runs import run_name, runs_due_at, until_fired
from tests.faults.scenes.schedules import cron_at, install, schedule, until_settled_to, until_shared
from tests.faults.scenes.writes import creates, refused_creates
from tests.faults.stage.clock import Clock
from tests.faults.stage.rig import OpenRig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

PLAIN = [f"plain-{number}" for number in range(12)]
CLOCKS = {"operator-1": -300.0, "operator-2": 300.0}


@pytest.mark.waits(250)
async def test_a_due_time_whose_run_was_deleted_does_not_fire_again(open_rig: OpenRig) -> None:
    """OO-02, RT-04: limit 1, a clock 5 min behind, one 5 min ahead, both restarted: one uid per due time."""
    rig = await open_rig(operator_settings(HISTORY_LIMIT=1, CATCH_UP_WINDOW_SECONDS=30))
    await start_operators(rig, list(CLOCKS), CLOCKS)
    await rig.start_hosts(1)
    await install(rig, [schedule(each) for each in PLAIN])
    await until_shared(rig, PLAIN)
    first = minute_after(rig, 1)
    await until_fired(rig, PLAIN, first, within=first + 30 - rig.now())
    deleted = first
    for name, ahead in CLOCKS.items():

        async def gone(due: float = deleted) -> bool:
            return not await runs_due_at(rig, due)

        await rig.until(gone, 200, "the runs of the oldest due time are deleted")
        await rig.kill(name)
        await rig.start_operator(name, clock=Clock.offset(ahead))
        deleted += MINUTE
    last = minute_after(rig, 3)
    await until_fired(rig, PLAIN, last, within=last + TAKEN_OVER - rig.now())
    history = await rig.collect()
    for due in minutes_between(first, last):
        assert_fired(history, PLAIN, due, within=TAKEN_OVER)
    assert all(len(writes) == 1 for writes in creates(history).values())
    assert not {run_name(each, first) for each in PLAIN} & history.runs.keys()
    assert_holds(history)


@pytest.mark.waits(140)
async def test_a_run_outlives_the_replica_that_has_its_due_time_in_hand(open_rig: OpenRig) -> None:
    """OO-02: fired by one, its status never written, not the newest any more: it is there for the heir."""
    rig = await open_rig(operator_settings(HISTORY_LIMIT=1, CATCH_UP_WINDOW_SECONDS=150))
    await start_operators(rig, operators(1, 2))
    await rig.start_hosts(1)
    name = shared_out(rig, operators(1, 2), each=1)["operator-1"][0]
    due = minute_after(rig, 12)
    await rig.host("host-1").apply(schedule(name, cron_at(due)))
    await until_shared(rig, [name])
    await until_time(rig, due - 2)
    rig.arm("operator-1", "before:schedule-status", "wait")
    await rig.reached("operator-1", "before:schedule-status", within=30)
    await until_time(rig, due + 2)  # another second, so that it is surely the newer one
    await rig.host("host-1").enqueue(name, {"newer": True})
    await until_time(rig, rig.now() + MINUTE + 5)  # retention looks once a minute
    await rig.kill("operator-1")
    await until_settled_to(rig, [name], due, within=40)
    history = await rig.collect()
    assert_fired(history, [name], due, within=LOADED)
    assert run_name(name, due) in {write.name for write in refused_creates(history, "operator-2")}
    assert run_name(name, due) in history.runs
    assert_holds(history)
