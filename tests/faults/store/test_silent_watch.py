"""A watch stays open and brings nothing: who relies on it notices, and meanwhile asks the store itself."""

from __future__ import annotations

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.scenes.calls import assert_called_once, steps
from tests.faults.scenes.minutes import minute_after, until_time
from tests.faults.scenes.processes import host_lease, start
from tests.faults.scenes.runs import behaving, create_run, ended_as, enqueue, run_name, until_phase
from tests.faults.scenes.schedules import ONCE_A_YEAR, apply_all, delete_all, schedule, until_observed
from tests.faults.stage.relay import Relay
from tests.faults.stage.rig import Rig
from tests.faults.store.changes import AFTER, BEFORE, assert_changes_count, change_meanwhile

pytestmark = [pytest.mark.faults, pytest.mark.timeout(290)]


@pytest.mark.waits(180)
@pytest.mark.parametrize("seconds", [pytest.param(20, marks=pytest.mark.slow), 75])
async def test_silence_of_operators_and_a_host(rig: Rig, seconds: float) -> None:
    """WA-01, WA-06: longer than a Lease, and longer than a watch: what changed meanwhile is honoured."""
    await start(rig, operators=2, hosts=2)
    await apply_all(rig, "host-1", [schedule(name) for name in BEFORE])
    silent = ("operator-1", "operator-2", "host-1")
    due = minute_after(rig, seconds - 10)
    await until_time(rig, due + 10 - seconds)
    mine = await enqueue(rig, "host-1", behaving(admit_turn="hang:3"), 3)
    for process in silent:
        await rig.proxy(process).silence()
    await change_meanwhile(rig, "host-2")
    (other,) = await enqueue(rig, "host-2", {})
    await until_phase(rig, [other], "Succeeded", within=15)
    await until_time(rig, due + 10)
    for operator in ("operator-1", "operator-2"):
        assert await rig.health(operator, "readyz") == (503, "the Lease of this operator is not held\n")
        code, text = await rig.health(operator, "healthz")
        assert code == (503 if seconds > 60 else 200), text
        assert seconds < 60 or "sweep of the schedules against a fresh list: last completed" in text
    for process in silent:
        await rig.proxy(process).mend()
    await until_phase(rig, [run_name(name, due) for name in AFTER], "Succeeded", within=30)
    await until_phase(
        rig, [run_name(name, due + 60) for name in AFTER], "Succeeded", within=due + 75 - rig.now()
    )
    for operator in ("operator-1", "operator-2"):
        assert await rig.health(operator, "readyz") == (200, "ok\n")
        assert await rig.health(operator, "healthz") == (200, "ok\n")
    await delete_all(rig, "host-2", AFTER)
    history = await rig.collect()
    assert_changes_count(history, [due, due + 60])
    assert ended_as(history, mine) == {"Succeeded": 3}
    assert_holds(history)


@pytest.mark.slow
@pytest.mark.waits(120)
async def test_connection_that_the_network_has_forgotten(rig: Rig) -> None:
    """WA-01, WA-06: only the open connections are dead: what the watches do not bring is seen all the same.

    By sweeps, or by the list with which a process begins again that has lost its Lease meanwhile.
    """
    async with Relay(rig.plane.url) as to_operator, Relay(rig.plane.url) as to_host:
        await rig.start_operator("operator-1", env=to_operator.environment)
        await rig.start_host("host-1", env=to_host.environment)
        await rig.start_host("host-2")
        await apply_all(rig, "host-2", [schedule(name) for name in BEFORE])
        mine = await host_lease(rig, "host-1")
        due = minute_after(rig, 8)
        await until_time(rig, due - 6)
        begun = rig.now()
        with rig.hindered("operator-1", "host-1"):
            assert to_operator.forget_open()
            assert to_host.forget_open()
            await change_meanwhile(rig, "host-2")
            await create_run(rig, "by-hand", {}, assignee=mine)
            await until_phase(rig, ["by-hand"], "Succeeded", within=45)  # long before its watch is given up
            dues = [due, due + 60]
            fired = [run_name(name, due) for name in AFTER]
            await until_phase(rig, fired, "Succeeded", within=due + 70 - rig.now())
        fired = [run_name(name, due + 60) for name in AFTER]
        await until_phase(rig, fired, "Succeeded", within=due + 90 - rig.now())
        await until_time(rig, begun + 80)
        await rig.host("host-2").apply(schedule("later", ONCE_A_YEAR))
        await until_observed(rig, "later", within=15)  # by a new watch: a sweep takes 27 s at the soonest
        await delete_all(rig, "host-2", AFTER)
        history = await rig.collect()
        assert_changes_count(history, dues)
        assert_called_once(history, ["by-hand"])
        assert {host for host, _ in steps(history, "by-hand")} == {"host-1"}
        assert_holds(history)
