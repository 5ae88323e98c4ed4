"""Operators that stand still over due times, or are replaced one by one under load."""

import pytest

from tests.faults.firing.fired import HANDED_OVER, LOADED, TAKEN_OVER, assert_fired
from tests.faults.firing.shares import install_shares
from tests.faults.history.check import assert_holds
from tests.faults.scenes.minutes import MINUTE, minute_after, minutes_between, until_time
from tests.faults.scenes.runs import until_fired
from tests.faults.scenes.schedules import install, schedule, until_settled_to, until_shared
from tests.faults.scenes.writes import creates
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

FROZEN = 22.0
"""Seconds: longer than its Lease, with what the others need to notice."""


@pytest.mark.waits(180)
async def test_a_frozen_operator_fires_nothing_twice(rig: Rig) -> None:
    """OO-05: stopped over a due time for longer than its Lease, each of two: the other fires for it."""
    operators = await rig.start_operators(2)
    await rig.start_hosts(1)
    shares = await install_shares(rig, operators, each=20)
    deployments = [name for share in shares.values() for name in share]
    first = minute_after(rig, 4)
    for number, name in enumerate(operators):
        due = first + number * MINUTE
        await until_time(rig, due - 1)
        rig.freeze(name)
        await until_time(rig, due - 1 + FROZEN)
        rig.thaw(name)
        await until_fired(rig, deployments, due, within=due + 40 - rig.now())
    last = first + len(operators) * MINUTE
    await until_settled_to(rig, deployments, last, within=last + 40 - rig.now())
    history = await rig.collect()
    for due in minutes_between(first, last):
        assert_fired(history, deployments, due, within=TAKEN_OVER)
    assert_fired(history, shares[operators[1]], first, within=LOADED)
    assert_fired(history, deployments, last, within=LOADED)
    by = {writes[0].by for writes in creates(history).values() if writes[0].received >= last}
    assert by == set(operators)
    assert_holds(history)


@pytest.mark.waits(190)
async def test_a_rolling_restart_loses_nothing(rig: Rig) -> None:
    """FI-09, WA-14: both operators replaced, twice, over due times of 40 schedules: once each, in time."""
    await rig.start_operators(2)
    await rig.start_hosts(1)
    deployments = [f"d-{number}" for number in range(40)]
    await install(rig, [schedule(each) for each in deployments])
    await until_shared(rig, deployments)
    first = minute_after(rig, 1)
    for number in range(4):
        await rig.start_operator(f"operator-{number + 3}")
        if number % 2 == 0:  # ends in the very moment in which all of them are due
            await until_time(rig, minute_after(rig, 0))
        assert await rig.terminate(f"operator-{number + 1}", within=32) == 0
    last = minute_after(rig, 1)
    await until_settled_to(rig, deployments, last, within=last + 40 - rig.now())
    history = await rig.collect()
    for due in minutes_between(first, last):
        assert_fired(history, deployments, due, within=HANDED_OVER)
    assert_holds(history)
