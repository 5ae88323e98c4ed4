"""AstraBox lives, and cannot reach the API server: nothing is called meanwhile, and nothing is doubled."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.history.facts import History
from tests.faults.scenes.calls import assert_called_once, step_counts, steps
from tests.faults.scenes.minutes import minute_after, until_time
from tests.faults.scenes.processes import LEASE, alive, start
from tests.faults.scenes.runs import RUN_NOW, behaving, ended_as, enqueue, run_name, until_phase
from tests.faults.scenes.schedules import (
    ONCE_A_YEAR,
    apply_all,
    delete_all,
    schedule,
    skipped,
    until_all,
    until_observed,
)
from tests.faults.stage.rig import Rig
from tests.faults.store.refusal import refused

pytestmark = [pytest.mark.faults, pytest.mark.timeout(290)]

NAMES = ("a", "b", "c")
HOSTS = ("host-1", "host-2")


async def staged(rig: Rig) -> None:
    await start(rig, operators=2, hosts=2)
    await apply_all(rig, "host-1", [schedule(name) for name in NAMES])


async def cut_over(rig: Rig, due: float, before: float, after: float) -> tuple[list[str], float, float]:
    """Cut all hosts off around a due time, with runs in progress: these runs, and when it began and ended."""
    await until_time(rig, due - before - 4)
    payload = behaving(start_session="hang:8", admit_turn="hang:8")
    mine = [name for host in HOSTS for name in await enqueue(rig, host, payload, 3)]
    await until_phase(rig, mine, "Running", within=10)
    await until_time(rig, due - before)
    for host in HOSTS:
        await rig.proxy(host).cut()
    begun = rig.now()
    assert await refused(lambda: rig.host("host-1").enqueue(RUN_NOW, {}))
    assert await refused(lambda: rig.host("host-2").list_runs(RUN_NOW))
    await until_time(rig, due + after)
    for host in HOSTS:
        await rig.proxy(host).mend()
    return mine, begun, rig.now()


def nothing_called_while_fenced(
    history: History, begun: float, ended: float, hosts: Collection[str] = HOSTS
) -> None:
    """RE-07: once the Lease has run out for a host by its own clock, it begins no call."""
    fenced = [call for call in history.calls if call.host in hosts and begun + LEASE < call.begun < ended]
    assert not fenced, fenced


def goes_on(history: History, names: list[str]) -> None:
    """Runs in progress end, each by one process after its Session was saved."""
    assert ended_as(history, names) == {"Succeeded": len(names)}
    for name in names:
        counted = step_counts(history, name)
        assert counted["start_session"] <= 2, name
        assert counted["admit_turn"] <= 2, name


@pytest.mark.waits(120)
async def test_due_time_of_a_short_cut_fires_late(rig: Rig) -> None:
    """G1: the hosts are back soon after the due time, and show that they were there: it fires, once."""
    await staged(rig)
    due = minute_after(rig, 30)
    mine, begun, ended = await cut_over(rig, due, before=24, after=8)
    await until_phase(
        rig, [run_name(name, each) for name in NAMES for each in (due, due + 60)], "Succeeded", within=90
    )
    await delete_all(rig, "host-1", NAMES)
    history = await rig.collect()
    nothing_called_while_fenced(history, begun, ended)
    goes_on(history, mine)
    assert_called_once(history, [run_name(name, due) for name in NAMES])
    assert_holds(history)


@pytest.mark.waits(120)
@pytest.mark.parametrize("before", [24, 6], ids=["skipped-first", "created-in-the-tail"])
async def test_due_time_of_a_long_cut_fires_once_the_hosts_are_back(rig: Rig, before: int) -> None:
    """G1: they were there, and nobody could know: skipped meanwhile, or made for nobody; not lost."""
    await staged(rig)
    due = minute_after(rig, 30)
    mine, begun, ended = await cut_over(rig, due, before=before, after=42)
    if before > LEASE:
        await until_all(
            rig, NAMES, lambda each: skipped(each)[1] == "NoAstraBoxProcess", 20, "tell of a skipped due time"
        )
    wanted = [run_name(name, each) for name in NAMES for each in (due, due + 60)]
    await until_phase(rig, wanted, "Succeeded", within=60)
    await delete_all(rig, "host-1", NAMES)
    history = await rig.collect()
    nothing_called_while_fenced(history, begun, ended)
    goes_on(history, mine)
    assert_called_once(history, wanted)
    assert_holds(history)


async def test_due_time_in_the_tail_of_the_leases(rig: Rig) -> None:
    """G1, RE-07: cut off just before it and back before a Lease has run out: it runs, once."""
    await staged(rig)
    due = minute_after(rig, 12)
    mine, begun, ended = await cut_over(rig, due, before=3, after=4)
    wanted = [run_name(name, due) for name in NAMES]
    await until_phase(rig, wanted, "Succeeded", within=40)
    await delete_all(rig, "host-1", NAMES)
    history = await rig.collect()
    assert not [call for call in history.calls if call.run_id in wanted and begun < call.begun < ended]
    goes_on(history, mine)
    assert_called_once(history, wanted)
    assert_holds(history)


async def test_host_that_lost_its_lease_calls_nobody(rig: Rig) -> None:
    """RE-07: claimed and not started when it was cut off: another one starts the run, and it does not."""
    await start(rig, operators=0, hosts=2)
    rig.arm("host-1", "after:attempt-begun", "wait")
    (name,) = await enqueue(rig, "host-1", {})
    await rig.reached("host-1", "after:attempt-begun")
    await rig.proxy("host-1").cut()
    begun = rig.now()
    await until_phase(rig, [name], "Succeeded", within=60)
    assert rig.now() - begun > LEASE - 6, "it was taken from a process whose Lease was valid"
    rig.release("host-1", "after:attempt-begun")
    await until_time(rig, rig.now() + 2)
    await rig.proxy("host-1").mend()
    (after,) = await enqueue(rig, "host-1", {})
    await until_phase(rig, [after], "Succeeded", within=30)
    history = await rig.collect()
    assert set(steps(history, name)) == {("host-2", "start_session"), ("host-2", "admit_turn")}
    assert_holds(history)


async def test_late_claim_meets_another_version(rig: Rig) -> None:
    """RE-03: a claim that comes when another one has the run is refused, and changes nothing."""
    await start(rig, operators=0, hosts=2)
    rig.arm("host-1", "before:attempt-begun", "wait")
    payload = behaving(start_session="hang:10")
    (name,) = await enqueue(rig, "host-1", payload)
    await rig.reached("host-1", "before:attempt-begun")
    await rig.proxy("host-1").cut()
    await rig.until(lambda: any(call.host == "host-2" for call in rig.calls()), 60, "host-2 has the run")
    await rig.proxy("host-1").mend()
    rig.release("host-1", "before:attempt-begun")
    await until_phase(rig, [name], "Succeeded", within=40)
    history = await rig.collect()
    assert_called_once(history, [name])
    assert history.runs[name]["status"]["attempts"] == 1
    late = [each for each in history.writes if each.by == "host-1" and each.subresource == "status"]
    assert [each.code for each in late if each.name == name] == [409]
    assert_holds(history)


@pytest.mark.slow
@pytest.mark.waits(120)
async def test_refused_credentials(rig: Rig) -> None:
    """WA-03: answered 401 for longer than a watch lasts: it ends, or says so and goes on; never blind."""
    await start(rig, operators=1, hosts=2)
    await apply_all(rig, "host-2", [schedule(name) for name in NAMES])
    due = minute_after(rig, 25)
    await until_time(rig, due - 20)
    async with rig.answering_401("operator-1"), rig.answering_401("host-1"):
        begun = rig.now()
        assert await refused(lambda: rig.host("host-1").enqueue(RUN_NOW, {}))
        await until_time(rig, begun + 75)
        operator_lives = "operator-1" in alive(rig)
        if operator_lives:
            assert (await rig.health("operator-1", "healthz"))[0] == 503
        ended = rig.now()
    if not operator_lives:
        await rig.start_operator("operator-1")  # as the kubelet does
    if "host-1" not in alive(rig):
        await rig.start_host("host-1")
    dues = [due, due + 60]
    await until_phase(rig, [run_name(name, each) for name in NAMES for each in dues], "Succeeded", within=60)
    await rig.host("host-1").apply(schedule("later", ONCE_A_YEAR))
    await until_observed(
        rig, "later", within=15
    )  # a watch brings it at once, a sweep after 27 s at the soonest
    (after,) = await enqueue(rig, "host-1", {})
    await until_phase(rig, [after], "Succeeded", within=30)
    await delete_all(rig, "host-1", NAMES)
    history = await rig.collect()
    codes = [life.code for life in history.lives if life.ended is not None]
    assert 0 not in codes, "it has ended as if all were well"
    nothing_called_while_fenced(history, begun, ended, ["host-1"])
    assert_called_once(history, [run_name(name, each) for name in NAMES for each in dues])
    assert_holds(history)
