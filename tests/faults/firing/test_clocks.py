"""Operators whose wall clocks are wrong: due times are those of the API server's clock."""

import pytest

from tests.faults.firing.fired import LOADED, assert_fired
from tests.faults.firing.shares import install_shares, start_operators
from tests.faults.history.check import assert_holds
from tests.faults.scenes.minutes import MINUTE, minute_after, until_time
from tests.faults.scenes.runs import due_of, until_fired
from tests.faults.scenes.schedules import skipped
from tests.faults.scenes.writes import creates
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

JUMP = 300.0


@pytest.mark.waits(180)
async def test_wrong_and_jumping_clocks_move_no_due_time(rig: Rig) -> None:
    """FI-06, FI-08, FI-17: 30 s off, and jumps by 5 min over due times: on time, once each, no burst."""
    clocks = {"operator-1": 30.0, "operator-2": -30.0, "operator-3": 0.0, "operator-4": 0.0}
    await start_operators(rig, list(clocks), clocks)
    await rig.start_hosts(1)
    shares = await install_shares(rig, list(clocks), each=5)
    deployments = [name for share in shares.values() for name in share]
    first = minute_after(rig, 4)
    second, third = first + MINUTE, first + 2 * MINUTE
    for due, ahead in ((first, JUMP), (second, 0.0), (third, JUMP)):
        await until_time(rig, due - 1)
        rig.set_clock("operator-3", ahead)
        rig.set_clock("operator-4", -ahead)
        await until_fired(rig, deployments, due, within=due + 30 - rig.now())
    history = await rig.collect()
    for due in (first, second, third):
        assert_fired(history, deployments, due, within=LOADED)
    made = creates(history)
    assert all(made[name][0].received >= due_of(run) for name, run in history.runs.items())
    owners = {writes[0].by for writes in made.values()}
    assert owners == clocks.keys(), "an operator has fired nothing, so that its clock has shown nothing"
    assert all(skipped(each) == (0, "") for each in history.schedules.values())
    assert_holds(history)
