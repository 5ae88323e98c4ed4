"""Hosts that stand still or are kept busy: a stopped process is replaced, a busy one is not."""

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.scenes.calls import calls_of, steps, until_begun
from tests.faults.scenes.objects import status
from tests.faults.scenes.processes import TAKEN_OVER_WITHIN, host_settings
from tests.faults.scenes.runs import behaving, enqueue, until_phase
from tests.faults.scenes.writes import writes_to_runs
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(280)]


async def test_thawed_host_writes_nothing_over_its_heir(rig: Rig) -> None:
    """RE-03: frozen around the save, in admit_turn and with a queue; thawed they touch none of them."""
    await rig.start_hosts(3, env=host_settings(CONCURRENCY=2))
    (admitting,) = await enqueue(rig, "host-1", behaving("host-1", admit_turn="hang:30"))
    await until_begun(rig, [admitting], "admit_turn")
    rig.arm("host-1", "before:start_session", "wait")
    rig.arm("host-1", "after:start_session", "stop")
    (starting,) = await enqueue(rig, "host-1", {})
    await rig.reached("host-1", "before:start_session", within=30)
    queued = await enqueue(rig, "host-1", {}, 3)
    rig.release("host-1", "before:start_session")
    await rig.reached("host-1", "after:start_session", within=30)
    rig.arm("host-3", "after:session-saved", "stop")
    (saved,) = await enqueue(rig, "host-3", {})
    await rig.reached("host-3", "after:session-saved", within=30)
    every = [admitting, starting, saved, *queued]
    done = await until_phase(rig, every, "Succeeded", within=90)
    thawed = rig.now()
    later = []
    for host in ("host-1", "host-3"):
        rig.thaw(host)
        later += await enqueue(rig, host, {})
    await until_phase(rig, later, "Succeeded", within=60)
    history = await rig.collect()
    for name in every:
        assert history.runs[name]["status"] == done[name]["status"], "written over after its end"
        late = [call for call in calls_of(history, name) if call.begun > thawed]
        assert late == [], "a thawed host has called AstraBox"
    written = writes_to_runs(history, lambda by: by in ("host-1", "host-3"), after=thawed)
    assert [write.name for write in written if write.succeeded and write.name not in later] == []
    assert steps(history, starting)[0] == ("host-1", "start_session")
    assert [step for _, step in steps(history, starting)[1:]] == ["start_session", "admit_turn"]
    assert [step for host, step in steps(history, admitting) if host != "host-1"] == ["admit_turn"]
    assert [step for host, step in steps(history, saved) if host != "host-3"] == ["admit_turn"]
    for name in queued:
        assert [step for _, step in steps(history, name)] == ["start_session", "admit_turn"]
    for name in every:
        assert steps(history, name)[-1][0] == "host-2", "not finished by the host that was there"
    assert_holds(history)


@pytest.mark.waits(80)
async def test_busy_host_keeps_its_runs(rig: Rig) -> None:
    """RE-04, RE-05: a call that hangs for minutes or blocks the loop longer than a Lease is made once."""
    await rig.start_hosts(3)
    (hanging,) = await enqueue(rig, "host-1", behaving(admit_turn="hang:70"))
    await until_begun(rig, [hanging], "admit_turn")
    (blocking,) = await enqueue(rig, "host-2", behaving(start_session="block:40"))
    await until_phase(rig, [blocking], "Succeeded", within=100)
    await until_phase(rig, [hanging], "Succeeded", within=120)
    history = await rig.collect()
    assert steps(history, hanging) == [("host-1", "start_session"), ("host-1", "admit_turn")]
    assert steps(history, blocking) == [("host-2", "start_session"), ("host-2", "admit_turn")]
    for name, step, seconds in ((hanging, "admit_turn", 70), (blocking, "start_session", 40)):
        (call,) = calls_of(history, name, step)
        assert call.ended is not None
        assert call.ended - call.begun >= seconds
        assert (status(history.runs[name])["attempts"], status(history.runs[name]).get("releases", 0)) == (
            1,
            0,
        )
    assert_holds(history)


@pytest.mark.waits(70)
async def test_host_blocked_for_good_is_replaced(rig: Rig) -> None:
    """WA-15: a loop that counts as dead after 10 s loses its runs; later the host is one of many."""
    await rig.start_hosts(2, env=host_settings(LOOP_DEAD_AFTER_SECONDS=10))
    (blocking,) = await enqueue(rig, "host-1", behaving("host-1", start_session="block:60"))
    await until_begun(rig, [blocking], "start_session")
    await until_phase(rig, [blocking], "Succeeded", within=90)
    (later,) = await enqueue(rig, "host-1", {})
    await until_phase(rig, [later], "Succeeded", within=90)
    history = await rig.collect()
    assert steps(history, blocking) == [
        ("host-1", "start_session"),
        ("host-2", "start_session"),
        ("host-2", "admit_turn"),
    ]
    assert (
        calls_of(history, blocking)[1].begun - calls_of(history, blocking)[0].begun < 10 + TAKEN_OVER_WITHIN
    )
    assert_holds(history)
