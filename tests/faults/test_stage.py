"""The stage does to processes what it says; a fault test that hinders nobody would prove nothing."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from astrabox.seams.scheduler import Schedule
from tests.faults.history.facts import History, Life
from tests.faults.scenes.runs import behaving, enqueue
from tests.faults.stage.admin import SCHEDULER_API, Admin
from tests.faults.stage.audit import read_writes
from tests.faults.stage.clock import Clock
from tests.faults.stage.records import read_lines
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(120)]

LATE = 3.0
"""Seconds by which a slow answer is late; longer than one takes on a busy machine."""


def life(history: History, name: str, number: int = -1) -> Life:
    return [each for each in history.lives if each.name == name][number]


def left_by(pids: set[int]) -> list[str]:
    found = [path.name for path in Path("/dev/shm").glob("*faketime*")]
    return [name for name in found if int(name.rsplit("_", 1)[1]) in pids]


def codes_so_far(rig: Rig) -> set[tuple[str, int | None]]:
    found = read_writes(rig.plane.audit_folder, rig._beginning.audit, rig.namespace, {})
    return {(write.by, write.code) for write in found}


async def test_a_proxy_does_what_it_says(rig: Rig) -> None:
    server = rig.actors._server
    proxy = await server.proxy("probe")
    async with Admin(rig.plane) as admin:

        async def seconds_of(within: float = 30.0) -> float:
            begun = time.monotonic()
            async with asyncio.timeout(within):
                assert await admin.status("GET", "/version", url=f"https://127.0.0.1:{proxy.port}") == 200
            return time.monotonic() - begun

        assert await seconds_of() < LATE
        await proxy.slow(LATE)
        assert await seconds_of() >= LATE  # over the connection that is open
        await proxy.mend()
        assert await seconds_of() < LATE
        await proxy.silence()
        with pytest.raises(TimeoutError):
            await seconds_of(within=1.0)
        with pytest.raises(TimeoutError):
            await seconds_of(within=1.0)
        await proxy.mend()
        await seconds_of()
        await proxy.cut()
        with pytest.raises(OSError, match="Connect"):
            await seconds_of()
        await proxy.mend()
        await seconds_of()
        await proxy.close_connections()
        assert await seconds_of() < LATE

        await proxy.swallow_answers()
        path = f"{SCHEDULER_API}/namespaces/{rig.namespace}/runinvocations"
        body = {
            "apiVersion": "scheduler.astrabox.io/v1",
            "kind": "RunInvocation",
            "metadata": {"name": "swallowed"},
            "spec": {"deploymentId": "a", "trigger": "manual", "payload": "{}"},
        }
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5.0):
                await admin.status("POST", path, body, url=f"https://127.0.0.1:{proxy.port}")
        assert [run["metadata"]["name"] for run in await rig.objects("runinvocations")] == ["swallowed"]


async def test_processes_are_killed_held_and_told_apart(rig: Rig) -> None:
    await rig.start_operators(1)
    await rig.start_hosts(2)
    rig.arm("host-1", "before:session-saved", "wait")
    held = await rig.host("host-1").enqueue("a", {"n": 1})
    await rig.reached("host-1", "before:session-saved")
    rig.release("host-1", "before:session-saved")
    await rig.until(lambda: len([c for c in rig.calls() if c.ended]) == 2, 10, "both calls")
    rig.arm("host-1", "after:attempt-begun", "kill:2")
    for number in (2, 3):
        await rig.host("host-1").enqueue("a", {"n": number})
    assert await rig.ended("host-1") == -signal.SIGKILL
    killed = time.time()
    rig.freeze("host-2")
    await rig.until(lambda: rig.actors.stopped("host-2"), 10, "host-2 stands still")
    rig.thaw("host-2")
    assert not rig.actors.stopped("host-2")
    rig.arm("operator-1", "before:lease-renewed", "stop")
    await rig.reached("operator-1", "before:lease-renewed")
    rig.thaw("operator-1")
    await rig.start_host("host-1")
    await rig.host("host-2").apply(Schedule("a", "0 0 1 1 *", "UTC", enabled=True, payload={"p": 1.0}))
    history = await rig.collect(settle=0)  # the run of the killed one waits for its Lease to run out
    assert await rig.terminate("host-1") == 0
    check_lives(history, killed)
    check_facts(history, held.run_id)


def check_lives(history: History, killed: float) -> None:
    first, second = life(history, "host-1", 0), life(history, "host-1", 1)
    assert (first.code, second.code) == (-signal.SIGKILL, None)
    assert first.ended is not None
    assert killed - 1 < first.ended < killed
    assert (
        len(first.hindered)
        == len(life(history, "host-2").frozen)
        == len(life(history, "operator-1").frozen)
        == 1
    )


def check_facts(history: History, run_id: str) -> None:
    assert history.runs[run_id]["status"]["phase"] == "Succeeded"
    writes = [write for write in history.writes if write.name == run_id]
    assert [(write.verb, write.by, write.code) for write in writes] == [
        ("create", "host-1", 201),
        *[("patch", "host-1", 200)] * 3,
    ]
    assert [(w.after or {}).get("status", {}).get("phase") for w in writes] == [
        None,
        "Running",
        "Running",
        "Succeeded",
    ]
    assert {write.by for write in history.writes if write.resource == "leases"} >= {
        "host-1",
        "host-2",
        "operator-1",
    }
    assert [call.payload for call in history.calls if call.run_id == run_id] == [{"n": 1}] * 2
    assert [c.op for c in history.commands].count("reconcile") == 3
    assert history.ledgers is not None
    assert len(history.ledgers["host-2"]["a"]) == 3


async def test_api_server_refuses_as_it_is_told(rig: Rig) -> None:
    await rig.start_hosts(1)
    async with Admin(rig.plane) as admin:
        path = f"{SCHEDULER_API}/namespaces/{rig.namespace}/runinvocations"
        token = rig._identities.token("host-1")
        async with rig.answering_429(["host-1"]):
            assert await admin.status("GET", path, token=token) == 429
            assert await admin.status("GET", path) == 200
        assert await admin.status("GET", path, token=token) == 200
        async with rig.answering_500(["host-1"]):
            trying = asyncio.create_task(rig.host("host-1").enqueue("a", {}))
            refused = rig.journal.latest("host-1").name
            await rig.until(lambda: (refused, 500) in codes_so_far(rig), 10, "the write is answered 500")
        await trying
        begun = time.monotonic()
        await rig.rotate_token("host-1")
        assert time.monotonic() - begun < 20
        assert await admin.status("GET", path, token=token) == 401
    await rig.host("host-1").enqueue("a", {})
    history = await rig.collect()
    assert {201, 500} <= {write.code for write in history.writes if write.by == "host-1"}
    assert len(life(history, "host-1").hindered) == 3


async def test_clock_moves_and_the_rest_of_time_does_not(rig: Rig) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.start_operator("operator-1", clock=Clock.offset(-3600)))
        group.create_task(rig.start_host("host-1", clock=Clock.steps()))
    rig.set_clock("host-1", 86_400)
    run = await rig.host("host-1").enqueue("a", behaving(start_session="block:0.2"))
    await rig.until(lambda: len([c for c in rig.calls() if c.ended]) == 2, 10, "both calls")
    assert {call.error for call in rig.calls()} == {None}
    assert {call.run_id for call in rig.calls()} == {run.run_id}
    assert all(abs(call.begun - time.time()) < 30 for call in rig.calls())
    (ends,) = {line["t"] // 3600 for line in read_lines(rig.actors.calls("host-1")) if line["phase"] == "end"}
    assert ends == pytest.approx(time.time() // 3600 + 24, abs=1)
    assert await rig.terminate("host-1") == 0
    assert await rig.terminate("operator-1") == 0
    assert not left_by({each.pid for each in rig.journal.lives})


@pytest.mark.own_plane
async def test_facts_outlive_the_api_server(rig: Rig) -> None:
    await rig.start_hosts(1)
    names = await enqueue(rig, "host-1", behaving(admit_turn="hang:3"), 3)
    await rig.kill_apiserver()
    await rig.start_apiserver()
    await rig.kill_etcd()
    await rig.start_etcd()
    history = await rig.collect()
    assert set(history.runs) == set(names)
    assert [outage.what for outage in history.outages] == ["kube-apiserver", "etcd"]
    for name, stored in history.runs.items():
        last = [write for write in history.writes if write.name == name and write.after][-1]
        assert last.after == {
            **stored,
            "metadata": {k: v for k, v in stored["metadata"].items() if k != "managedFields"},
        }
