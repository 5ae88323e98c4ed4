"""Tokens of service accounts are replaced and the old ones revoked, while runs go on."""

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.scenes.calls import calls_of, steps, until_begun
from tests.faults.scenes.minutes import until_time
from tests.faults.scenes.processes import host_lease
from tests.faults.scenes.runs import behaving, create_run, enqueue, until_phase
from tests.faults.scenes.schedules import ONCE_A_YEAR, ready, schedule, until_all
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(280)]

PROCESSES = ("host-1", "host-2", "operator-1")
WATCHES_RENEWED = 75.0
"""Seconds after which every watch has been begun anew: the longest lasts 60 s."""


@pytest.mark.waits(100)
async def test_revoked_tokens_stop_nothing(rig: Rig) -> None:
    """WA-03, WA-09: new tokens are used without a restart, also by watches; no run is repeated."""
    await rig.start_operators(1)
    await rig.start_hosts(2)
    leases = {host: await host_lease(rig, host) for host in ("host-1", "host-2")}
    (long,) = await enqueue(rig, "host-1", behaving(start_session="hang:20", admit_turn="hang:60"))
    await until_begun(rig, [long], "start_session")
    for name in PROCESSES:
        await rig.rotate_token(name)
    rotated = rig.now()
    soon = [name for host in leases for name in await enqueue(rig, host, {}, 3)]
    await until_phase(rig, soon, "Succeeded", within=30)
    await _observed(rig, "after-rotation")
    await until_time(rig, rotated + WATCHES_RENEWED)
    for host, lease in leases.items():
        await create_run(rig, f"by-hand-{host}", {}, assignee=lease)
    await until_phase(
        rig, [f"by-hand-{host}" for host in leases], "Succeeded", within=8
    )  # a sweep takes 10 s
    await _observed(rig, "after-new-watches")
    await until_phase(rig, [long], "Succeeded", within=60)
    history = await rig.collect()
    assert steps(history, long) == [("host-1", "start_session"), ("host-1", "admit_turn")]
    for host in leases:
        assert {call.host for call in calls_of(history, f"by-hand-{host}")} == {host}
    assert [life.name for life in history.lives if life.code is not None and life.asked_to_end is None] == []
    assert len(history.lives) == len(PROCESSES)
    assert_holds(history)


async def _observed(rig: Rig, deployment: str) -> None:
    """The operator says of a new schedule that it is ready."""
    await rig.host("host-1").apply(schedule(deployment, ONCE_A_YEAR))
    await until_all(rig, [deployment], lambda each: ready(each) == "True", 40, "are ready")
