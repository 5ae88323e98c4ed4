"""What a hand does to a run while its handler call is in progress, on real processes."""

import pytest

from astrabox_scheduler_crds import labels
from tests.faults.history.check import assert_holds
from tests.faults.history.facts import Object
from tests.faults.scenes.calls import calls_of, steps, until_begun
from tests.faults.scenes.minutes import until_time
from tests.faults.scenes.objects import status
from tests.faults.scenes.processes import host_lease, host_settings
from tests.faults.scenes.runs import behaving, create_run, enqueue, phase, until_phase
from tests.faults.scenes.writes import writes_to_runs
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(200)]


async def test_deleted_or_given_away_its_call_is_cancelled_and_its_place_is_free(rig: Rig) -> None:
    """RE-06: nothing is written for it then, and the host that was given the run goes on with it."""
    await rig.start_hosts(2, env=host_settings(CONCURRENCY=2))
    other = await host_lease(rig, "host-2")
    (deleted,) = await enqueue(rig, "host-1", behaving("host-1", start_session="hang:600"))
    (given,) = await enqueue(rig, "host-1", behaving("host-1", admit_turn="hang:600"))
    await until_begun(rig, [deleted], "start_session")
    await until_begun(rig, [given], "admit_turn")
    queued = await enqueue(rig, "host-1", {}, 2)
    acted = rig.now()
    await rig.kubectl("delete", labels.RUN_PLURAL, deleted, "--wait=false")
    await rig.kubectl("label", labels.RUN_PLURAL, given, f"{labels.ASSIGNEE_LABEL}={other}", "--overwrite")
    await until_phase(rig, [given, *queued], "Succeeded", within=30)
    history = await rig.collect()
    for name, step in ((deleted, "start_session"), (given, "admit_turn")):
        (call,) = calls_of(history, name, step, by="host-1")
        assert call.error is not None
        assert call.error.startswith("CancelledError")
        assert call.ended is not None
        assert call.ended - acted < 10
        assert [
            w for w in writes_to_runs(history, lambda by: by == "host-1", acted, name) if w.succeeded
        ] == []
    assert deleted not in history.runs
    assert steps(history, given) == [
        ("host-1", "start_session"),
        ("host-1", "admit_turn"),
        ("host-2", "admit_turn"),
    ]
    assert status(history.runs[given])["attempts"] == 2
    for name in queued:
        assert {host for host, _ in steps(history, name)} == {"host-1"}, "its place was not free"
        assert phase(history.runs[name]) == "Succeeded"
    assert_holds(history)


async def test_given_away_while_its_host_stands_still_it_is_not_written_over(rig: Rig) -> None:
    """RE-03: its Lease holds, so that it writes what it had in mind: that is refused by the version alone."""
    await rig.start_hosts(2)
    mine, other = await host_lease(rig, "host-1"), await host_lease(rig, "host-2")
    thawed: dict[str, float] = {}
    ended: dict[str, Object] = {}
    for number, point in enumerate(("before:attempt-begun", "after:start_session", "after:admit_turn")):
        name = f"by-hand-{number}"
        rig.arm("host-1", point, "stop")
        await create_run(rig, name, {}, assignee=mine)
        await rig.reached("host-1", point, within=30)
        await rig.proxy("host-1").slow(6)  # its watch tells it too late; what it sends arrives at once
        await rig.kubectl("label", labels.RUN_PLURAL, name, f"{labels.ASSIGNEE_LABEL}={other}", "--overwrite")
        ended |= await until_phase(rig, [name], "Succeeded", within=60)
        thawed[name] = rig.now()
        rig.thaw("host-1")
        await until_time(rig, thawed[name] + 2)  # so long it may write
        await rig.proxy("host-1").mend()
        await until_phase(rig, await enqueue(rig, "host-1", {}), "Succeeded", within=60)  # it is back
    history = await rig.collect()
    for name, at in thawed.items():
        late = writes_to_runs(history, lambda by: by == "host-1", at, name)
        codes = {write.code for write in late}
        assert codes <= {409, 504}, f"{codes}: not refused by its version, nor given up while it was sent"
        assert history.runs[name]["status"] == ended[name]["status"]
        assert steps(history, name)[-1] == ("host-2", "admit_turn")
    assert_holds(history)
