"""AstraBox lives, and cannot reach the API server: nothing is called meanwhile, and nothing is doubled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.history.facts import History
from tests.faults.stage.rig import Rig
from tests.faults.store.health import health
from tests.faults.store.scenes import (
    apply_all,
    behaving,
    calls,
    ends,
    minutely,
    next_due,
    refused,
    run_at,
    schedules,
    start,
    until_observed,
    until_phase,
    until_time,
)

pytestmark = [pytest.mark.faults, pytest.mark.timeout(290)]

LEASE = 15.0
NAMES = ("a", "b", "c")
HOSTS = ("host-1", "host-2")


async def staged(rig: Rig) -> None:
    await start(rig, operators=2, hosts=2)
    await apply_all(rig, "host-1", [minutely(name) for name in NAMES])


async def cut_over(rig: Rig, due: float, before: float, after: float) -> tuple[list[str], float, float]:
    """Cut all hosts off around a due time, with runs in progress: these runs, and when it began and ended."""
    await until_time(rig, due - before - 4)
    payload = behaving(start_session="hang:8", admit_turn="hang:8")
    mine = [
        (await rig.host(host).enqueue("hand", payload, trigger="manual")).run_id
        for host in HOSTS
        for _ in "123"
    ]
    await until_phase(rig, mine, {"Running"}, within=10)
    await until_time(rig, due - before)
    for host in HOSTS:
        await rig.proxy(host).cut()
    begun = rig.now()
    assert await refused(lambda: rig.host("host-1").enqueue("hand", {}, trigger="manual"))
    assert await refused(lambda: rig.host("host-2").list_runs("hand"))
    await until_time(rig, due + after)
    for host in HOSTS:
        await rig.proxy(host).mend()
    return mine, begun, rig.now()


def nothing_called_while_fenced(history: History, begun: float, ended: float) -> None:
    """RE-07: once the Lease has run out for a host by its own clock, it begins no call."""
    fenced = [call for call in history.calls if begun + LEASE < call.begun < ended]
    assert not fenced, fenced


def goes_on(history: History, names: list[str]) -> None:
    """Runs in progress end, each by one process after its Session was saved."""
    assert ends(history, names) == {"Succeeded": len(names)}
    for name in names:
        counted = calls(history, name)
        assert counted["start_session"] <= 2, name
        assert counted["admit_turn"] <= 2, name


async def undue(rig: Rig) -> None:
    for name in NAMES:
        await rig.host("host-1").delete(name)


async def test_due_time_of_a_short_cut_fires_late(rig: Rig) -> None:
    """G1: the hosts are back soon after the due time, and show that they were there: it fires, once."""
    await staged(rig)
    due = next_due(rig, 30)
    mine, begun, ended = await cut_over(rig, due, before=24, after=8)
    await until_phase(
        rig, [run_at(name, each) for name in NAMES for each in (due, due + 60)], {"Succeeded"}, within=90
    )
    await undue(rig)
    history = await rig.collect()
    nothing_called_while_fenced(history, begun, ended)
    goes_on(history, mine)
    for name in NAMES:
        assert calls(history, run_at(name, due)) == {"start_session": 1, "admit_turn": 1}
    assert_holds(history)


async def test_due_time_of_a_long_cut_is_skipped_and_told(rig: Rig) -> None:
    """G1: nobody has shown for long that he was there: skipped, told, never doubled."""
    await staged(rig)
    due = next_due(rig, 30)
    mine, begun, ended = await cut_over(rig, due, before=24, after=35)
    await until_phase(rig, [run_at(name, due + 60) for name in NAMES], {"Succeeded"}, within=60)

    async def told() -> bool:
        stored = await schedules(rig)
        return all(
            (stored[name].get("status", {}).get("skipped") or {}).get("reason") == "NoAstraBoxProcess"
            for name in NAMES
        )

    await rig.until(told, 30, "the skipped due time is told in the status")
    await undue(rig)
    history = await rig.collect()
    nothing_called_while_fenced(history, begun, ended)
    goes_on(history, mine)
    assert not {run_at(name, due) for name in NAMES} & history.runs.keys()
    assert_holds(history)


async def test_due_time_in_the_tail_of_the_leases(rig: Rig) -> None:
    """G1, RE-07: cut off just before it and back before a Lease has run out: it runs, once."""
    await staged(rig)
    due = next_due(rig, 12)
    mine, begun, ended = await cut_over(rig, due, before=3, after=4)
    wanted = [run_at(name, due) for name in NAMES]
    await until_phase(rig, wanted, {"Succeeded"}, within=40)
    await undue(rig)
    history = await rig.collect()
    assert not [call for call in history.calls if call.run_id in wanted and begun < call.begun < ended]
    goes_on(history, mine)
    for name in wanted:
        assert calls(history, name) == {"start_session": 1, "admit_turn": 1}, name
    assert_holds(history)


async def test_host_that_lost_its_lease_calls_nobody(rig: Rig) -> None:
    """RE-07: claimed and not started when it was cut off: another one starts the run, and it does not."""
    await start(rig, operators=0, hosts=2)
    rig.arm("host-1", "after:attempt-begun", "wait")
    name = (await rig.host("host-1").enqueue("hand", {}, trigger="manual")).run_id
    await rig.reached("host-1", "after:attempt-begun")
    await rig.proxy("host-1").cut()
    begun = rig.now()
    await until_phase(rig, [name], {"Succeeded"}, within=60)
    assert rig.now() - begun > LEASE - 6, "it was taken from a process whose Lease was valid"
    rig.release("host-1", "after:attempt-begun")
    await until_time(rig, rig.now() + 2)
    await rig.proxy("host-1").mend()
    after = (await rig.host("host-1").enqueue("hand", {}, trigger="manual")).run_id
    await until_phase(rig, [after], {"Succeeded"}, within=30)
    history = await rig.collect()
    assert {(call.host, call.step) for call in history.calls if call.run_id == name} == {
        ("host-2", "start_session"),
        ("host-2", "admit_turn"),
    }
    assert_holds(history)


async def test_late_claim_meets_another_version(rig: Rig) -> None:
    """RE-03: a claim that comes when another one has the run is refused, and changes nothing."""
    await start(rig, operators=0, hosts=2)
    rig.arm("host-1", "before:attempt-begun", "wait")
    payload = behaving(start_session="hang:10")
    name = (await rig.host("host-1").enqueue("hand", payload, trigger="manual")).run_id
    await rig.reached("host-1", "before:attempt-begun")
    await rig.proxy("host-1").cut()
    await rig.until(lambda: any(call.host == "host-2" for call in rig.calls()), 60, "host-2 has the run")
    await rig.proxy("host-1").mend()
    rig.release("host-1", "before:attempt-begun")
    await until_phase(rig, [name], {"Succeeded"}, within=40)
    history = await rig.collect()
    assert calls(history, name) == {"start_session": 1, "admit_turn": 1}
    assert history.runs[name]["status"]["attempts"] == 1
    late = [each for each in history.writes if each.by == "host-1" and each.subresource == "status"]
    assert [each.code for each in late if each.name == name] == [409]
    assert_holds(history)


@asynccontextmanager
async def token_refused(rig: Rig, name: str) -> AsyncIterator[None]:
    """Every request of this process is answered 401; at the end it finds another token."""
    identities = rig._identities
    with rig.hindered(name):
        token, secret = identities.token(name), identities._secrets[name]
        await rig.kubectl("delete", "secret", secret)

        async def refused_now() -> bool:
            return await rig._admin.status("GET", "/version", token=token) == HTTPStatus.UNAUTHORIZED

        await rig.until(refused_now, 30, f"the token of {name} is refused")
        yield
        await identities._issue(name)


async def test_refused_credentials(rig: Rig) -> None:
    """WA-03: answered 401 for longer than a watch lasts: it ends, or says so and goes on; never blind."""
    await start(rig, operators=1, hosts=2)
    await apply_all(rig, "host-2", [minutely(name) for name in NAMES])
    due = next_due(rig, 25)
    await until_time(rig, due - 20)
    async with token_refused(rig, "operator-1"), token_refused(rig, "host-1"):
        begun = rig.now()
        assert await refused(lambda: rig.host("host-1").enqueue("hand", {}, trigger="manual"))
        await rig.until(lambda: rig.now() - begun > 75, 80, "75 s are over")
        alive = still_there(rig, "operator-1")
        if alive:
            assert (await health(rig, "operator-1", "healthz"))[0] == 503
        ended = rig.now()
    if not alive:
        await rig.start_operator("operator-1")  # as the kubelet does
    if not still_there(rig, "host-1"):
        await rig.start_host("host-1")
    dues = [due, due + 60]
    await until_phase(rig, [run_at(name, each) for name in NAMES for each in dues], {"Succeeded"}, within=60)
    await rig.host("host-1").apply(minutely("later", cron="0 0 1 1 *"))
    await until_observed(
        rig, "later", within=15
    )  # a watch brings it at once, a sweep after 27 s at the soonest
    after = (await rig.host("host-1").enqueue("hand", {}, trigger="manual")).run_id
    await until_phase(rig, [after], {"Succeeded"}, within=30)
    await undue(rig)
    history = await rig.collect()
    codes = [life.code for life in history.lives if life.ended is not None]
    assert 0 not in codes, "it has ended as if all were well"
    fenced = [call for call in history.calls if call.host == "host-1" and begun + LEASE < call.begun < ended]
    assert not fenced, fenced
    for each in dues:
        for name in NAMES:
            assert calls(history, run_at(name, each)) == {"start_session": 1, "admit_turn": 1}
    assert_holds(history)


def still_there(rig: Rig, name: str) -> bool:
    """Whether the process lives."""
    rig.actors.look()
    return rig.journal.latest(name).end is None
