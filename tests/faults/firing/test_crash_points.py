"""Operators that die between every two of their writes: each due time still has exactly one run."""

import asyncio

import pytest

from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.permissions import OPERATOR_PERMISSIONS
from tests.faults.firing.crashes import (
    WRITES,
    assert_died,
    assert_writes_known,
    leave_lease,
    leave_tombstone,
    spoil,
    until_dead,
    victims,
)
from tests.faults.firing.fired import LOADED, TAKEN_OVER, assert_fired, assert_not_fired
from tests.faults.firing.shares import install_shares, operators, shared_out, start_operators, succession
from tests.faults.history.check import assert_holds
from tests.faults.scenes.calls import first_calls
from tests.faults.scenes.minutes import MINUTE, minute_after, minutes_between, until_time
from tests.faults.scenes.processes import operator_settings
from tests.faults.scenes.runs import finished_because, phases, run_name, runs_due_at, until_fired
from tests.faults.scenes.schedules import install, schedule, until_settled_to, until_shared
from tests.faults.stage.rig import OpenRig, Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

HEIR = "operator-1"
PLAIN = [f"plain-{number}" for number in range(8)]


def test_the_table_holds_every_write_that_an_operator_may_make() -> None:
    """What it has no right to, it cannot write."""
    rights = {(each.verb, each.resource) for each in OPERATOR_PERMISSIONS}
    assert {right for right in rights if right[0] not in ("get", "list", "watch")} <= set(WRITES.values())


@pytest.mark.waits(110)
async def test_an_operator_dies_at_every_write_of_a_due_minute(rig: Rig) -> None:
    """FI-15, WA-04: 7 victims, one heir: each due time has its one run, a Lease later at most."""
    doomed = victims(
        operators(2, 8),
        *("kill before:run-created", "kill after:run-created", "term before:run-created"),
        *("kill before:schedule-status", "term after:schedule-status"),
        *("kill before:event", "term after:event"),
    )
    everyone = [HEIR, *(each.name for each in doomed)]
    await start_operators(rig, everyone)
    await rig.start_hosts(1)
    shares = await install_shares(rig, everyone, each=5)
    deployments = [name for share in shares.values() for name in share]
    due = minute_after(rig, 6)
    spoiled = shared_out(rig, everyone, each=1, prefix="bad")
    await until_time(rig, due - 3)
    for each in doomed:
        each.arm(rig)
    async with asyncio.TaskGroup() as group:
        for each in doomed:
            if each.point.endswith(":event"):
                group.create_task(spoil(rig, spoiled[each.name][0]))
    await until_dead(rig, doomed, within=40)
    await until_fired(rig, deployments, due, within=due + 60 - rig.now())
    await until_settled_to(rig, deployments, due + MINUTE, within=due + MINUTE + 45 - rig.now())
    history = await rig.collect()
    assert_died(history, doomed)
    assert_fired(history, deployments, due, within=TAKEN_OVER)
    assert_fired(history, deployments, due + MINUTE, within=LOADED)
    names = [run_name(each, due) for each in deployments]
    assert phases(history.runs, names) == dict.fromkeys(names, "Succeeded")
    assert_writes_known(history)
    assert_holds(history)


@pytest.mark.waits(100)
async def test_an_operator_dies_around_its_lease(rig: Rig) -> None:
    """OO-05: killed as it takes, keeps or gives up its share just before a due time: the heir fires it."""
    keeping = victims(operators(2, 3), "kill after:lease-renewed", "term before:lease-renewed")
    leaving = victims(operators(4, 4), "kill before:lease-released")
    coming = victims(operators(5, 6), "kill before:lease-created", "kill after:lease-created")
    everyone = [HEIR, *(each.name for each in (*keeping, *leaving))]
    await start_operators(rig, everyone)
    await rig.start_hosts(1)
    shares = await install_shares(rig, everyone, each=6)
    deployments = [name for share in shares.values() for name in share]
    due = minute_after(rig, 14)
    await until_time(rig, due - 12)
    for each in coming:
        each.arm(rig)
        await rig.start_operator(each.name, ready=False)
    await until_time(rig, due - 2)
    for each in (*keeping, *leaving):
        each.arm(rig)
    for each in leaving:
        rig.ask_to_end(each.name)
    doomed = [*keeping, *leaving, *coming]
    await until_dead(rig, doomed, within=60)
    await until_fired(rig, deployments, due, within=due + 60 - rig.now())
    last = minute_after(rig, 0)
    await until_settled_to(rig, deployments, last, within=last + 45 - rig.now())
    history = await rig.collect()
    assert_died(history, doomed)
    for instant in minutes_between(due, last):
        assert_fired(history, deployments, instant, within=TAKEN_OVER)
    assert_writes_known(history)
    assert_holds(history)


@pytest.mark.waits(190)
async def test_an_operator_dies_as_it_cancels_what_nobody_will_start(open_rig: OpenRig) -> None:
    """RT-07: all hosts are killed a second before a due time: its runs end cancelled, and never start."""
    rig = await open_rig(operator_settings(CATCH_UP_WINDOW_SECONDS=30))
    await start_operators(rig, operators(1, 4))
    await rig.start_hosts(1)
    await install(rig, [schedule(each) for each in PLAIN])
    deaths = ("kill before:run-cancelled", "kill after:run-cancelled", "term before:run-cancelled")
    doomed = victims(succession(rig, operators(1, 4), "orphans")[:3], *deaths)
    for each in doomed:
        each.arm(rig)
    await until_shared(rig, PLAIN)
    due = minute_after(rig, 5)
    await until_time(rig, due - 1)
    await rig.kill("host-1")
    await until_dead(rig, doomed, within=150)
    names = [run_name(each, due) for each in PLAIN]

    async def cancelled() -> bool:
        return set(phases(await runs_due_at(rig, due), names).values()) == {"Cancelled"}

    await rig.until(cancelled, 60, "every run of the tail is cancelled")
    await until_time(rig, due + MINUTE + 5)  # the next due time passes with nobody there as well
    await rig.start_host("host-2")
    after = minute_after(rig, 1)
    await until_fired(rig, PLAIN, after, within=after + 30 - rig.now())
    history = await rig.collect()
    assert_died(history, doomed)
    assert {finished_because(history.runs[name]) for name in names} == {("Cancelled", "NoAstraBoxProcess")}
    assert not set(names) & first_calls(history).keys()
    assert_not_fired(history, PLAIN, [due + MINUTE])
    assert_writes_known(history)
    assert_holds(history)


@pytest.mark.waits(250)
async def test_an_operator_dies_as_it_cleans_up(open_rig: OpenRig) -> None:
    """OO-02, RT-01: killed at deletes of schedules, Leases, runs: the heir cleans up, nothing fires twice."""
    rig = await open_rig(operator_settings(HISTORY_LIMIT=1, CATCH_UP_WINDOW_SECONDS=30))
    await start_operators(rig, operators(1, 4))
    await rig.start_hosts(1)
    deaths = ("kill before:schedule-removed", "kill after:lease-deleted", "kill before:run-deleted")
    doomed = victims(succession(rig, operators(1, 4), "retention")[:3], *deaths)
    await install(rig, [schedule(each) for each in PLAIN])
    first = minute_after(rig, 3)
    await leave_tombstone(rig, "gone")  # a reconcile would clear it away
    for each in doomed:
        each.arm(rig)
        if each.point.endswith("lease-deleted"):
            await leave_lease(rig, "host-of-old")
        await until_dead(rig, [each], within=200)  # two runs of a minute, a minute of age, a round per minute
        await until_time(rig, rig.now() + TAKEN_OVER)  # two takeovers in a row would outlast the window
    last = minute_after(rig, 3)

    async def clean() -> bool:
        there = [*await rig.objects(labels.SCHEDULE_PLURAL), *await rig.objects("leases")]
        names = {each["metadata"]["name"] for each in there}
        return not names & {"gone", "host-of-old"} and len(await runs_due_at(rig, first)) == 0

    await rig.until(clean, 150, "what is not needed is gone")
    await until_settled_to(rig, PLAIN, last, within=max(30.0, last + 30 - rig.now()))
    history = await rig.collect()
    assert_died(history, doomed)
    for due in minutes_between(first, last):
        assert_fired(history, PLAIN, due, within=TAKEN_OVER)
    assert_writes_known(history)
    assert_holds(history)
