"""Two operators that fire the same due times: the name decides, and both go on."""

import pytest

from tests.faults.firing.fired import TAKEN_OVER, assert_fired
from tests.faults.firing.shares import operators, start_operators
from tests.faults.history.check import assert_holds
from tests.faults.history.due import text
from tests.faults.scenes.minutes import minute_after, minutes_between
from tests.faults.scenes.objects import status
from tests.faults.scenes.processes import operator_settings
from tests.faults.scenes.runs import run_name, runs_due_at, until_fired
from tests.faults.scenes.schedules import install, ready, schedule, until_settled_to, until_shared
from tests.faults.scenes.writes import creates, refused_creates
from tests.faults.stage.rig import OpenRig, Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

MANY = [f"many-{number}" for number in range(100)]


async def until_no_more(rig: Rig, due: float, quiet: float = 4.0) -> None:
    """Wait until for so many seconds no further run of this due time has been created."""
    seen, since = -1, rig.now()

    async def still() -> bool:
        nonlocal seen, since
        found = len(await runs_due_at(rig, due))
        if found != seen:
            seen, since = found, rig.now()
        return rig.now() - since >= quiet

    await rig.until(still, 40, f"no more runs of {text(due)} are created")


@pytest.mark.waits(210)
async def test_the_same_due_time_fired_twice_is_one_run(open_rig: OpenRig) -> None:
    """OO-01, OO-03, OO-05: 100 creates meet 100 names; one is held until another operator has fired it."""
    rig = await open_rig(operator_settings(CREATE_CONCURRENCY=64))
    await rig.start_operators(1)
    await rig.start_hosts(1)
    await install(rig, [schedule(each) for each in MANY])
    await until_shared(rig, MANY)
    first = minute_after(rig, 4)
    rig.arm("operator-1", "after:run-created", f"kill:{len(MANY)}")
    await rig.reached("operator-1", "after:run-created", within=first + 60 - rig.now())
    await start_operators(rig, operators(2, 3))
    await until_settled_to(rig, MANY, first, within=60)
    second = minute_after(rig, 4)
    rig.arm("operator-2", "before:run-created", "wait")
    await rig.reached("operator-2", "before:run-created", within=second + 20 - rig.now())
    await until_no_more(rig, second)
    silenced = rig.now()
    await rig.proxy("operator-2").silence()
    await until_fired(rig, MANY, second, within=60)
    await rig.proxy("operator-2").mend()
    rig.release("operator-2", "before:run-created")
    third = minute_after(rig, 8)  # its Lease is its own again until then
    await until_fired(rig, MANY, third, within=third + 30 - rig.now())
    await until_settled_to(rig, MANY, third, within=60)
    history = await rig.collect()
    met = {write.name for by in ("operator-2", "operator-3") for write in refused_creates(history, by)}
    assert {run_name(each, first) for each in MANY} <= met, "no conflict, so that nothing was shown"
    held = [write.name for write in refused_creates(history, "operator-2") if write.received >= second]
    assert held, "the create that was held met no conflict"
    for due in minutes_between(first, third):
        lost = silenced - due if due == second else 0.0
        assert_fired(history, MANY, due, within=lost + TAKEN_OVER)
    by = {writes[0].by for name, writes in creates(history).items() if writes[0].received >= third}
    assert by == {"operator-2", "operator-3"}
    told = history.schedules.values()
    assert {ready(each) for each in told} == {"True"}
    assert all(status(each)["lastRun"] == run_name(each["spec"]["deploymentId"], third) for each in told)
    assert_holds(history)
