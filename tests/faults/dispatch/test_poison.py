"""A run that takes its process down with it, and hosts that are started again each time."""

import asyncio

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.scenes.calls import calls_of, steps
from tests.faults.scenes.objects import status
from tests.faults.scenes.processes import alive, host_settings
from tests.faults.scenes.runs import behaving, ended_as, enqueue, until_phase
from tests.faults.stage.rig import OpenRig, Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(290)]

ATTEMPTS = 3
HOSTS = ("host-1", "host-2")


@pytest.mark.waits(60)
async def test_run_that_kills_its_process_fails_alone(open_rig: OpenRig) -> None:
    """It ends Failed after exactly the attempts that are set; all other runs of these hosts complete."""
    rig = await open_rig(host_settings(MAX_ATTEMPTS=ATTEMPTS))
    await rig.start_hosts(2)
    others = await enqueue(rig, "host-1", behaving(admit_turn="hang:2"), 10)
    (poison,) = await enqueue(rig, "host-1", behaving(start_session="kill"))
    kubelet = asyncio.create_task(_restart(rig))
    try:
        done = await until_phase(rig, [poison], "Failed", within=200)
        others += await enqueue(rig, "host-2", {}, 5)
        await until_phase(rig, others, "Succeeded", within=60)
    finally:
        kubelet.cancel()
        await asyncio.gather(kubelet, return_exceptions=True)
    history = await rig.collect()
    assert [step for _, step in steps(history, poison)] == ["start_session"] * ATTEMPTS
    assert len({call.pid for call in calls_of(history, poison)}) == ATTEMPTS
    lost = f"the process that ran it was lost in {ATTEMPTS} of {ATTEMPTS} attempts"
    assert status(done[poison])["lastError"] == lost
    assert ended_as(history, others) == {"Succeeded": len(others)}
    assert_holds(history)


async def _restart(rig: Rig) -> None:
    """A kubelet: a host that has ended is started again."""
    while True:
        await rig.until(lambda: bool(set(HOSTS) - alive(rig)), 300, "a host has ended")
        for host in set(HOSTS) - alive(rig):
            rig.note(f"{host} is started again")
            await rig.start_host(host, ready=False)
