"""stop() under load, as in a rolling update: bounded, nothing lost, nothing counted against a run."""

import asyncio

import pytest

from tests.faults.dispatch.scenes import (
    DEPLOYMENT,
    behaving,
    calls_of,
    ended_as,
    enqueue,
    settings,
    status,
    until_begun,
    until_phase,
    used_up,
)
from tests.faults.history.check import assert_holds
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(280)]

AT_ONCE = 10.0
"""Seconds in which a run that is handed over is taken up: less than a Lease."""


async def test_stop_under_load_is_bounded_and_hands_everything_over(rig: Rig) -> None:
    """120 runs, 50 in calls that hang: exit 0 within 32 s; what waits goes on at once, the rest then."""
    await rig.start_host("host-1", env=settings(CONCURRENCY="50"))
    hanging = await enqueue(rig, "host-1", behaving("host-1", start_session="hang:600"), 25)
    hanging += await enqueue(rig, "host-1", behaving("host-1", admit_turn="hang:600"), 25)
    await until_begun(rig, hanging[:25], "start_session")
    await until_begun(rig, hanging[25:], "admit_turn")
    waiting = await enqueue(rig, "host-1", {}, 70)
    await rig.start_host("host-2")
    await rig.start_host("host-3")
    asked = rig.now()
    assert await rig.terminate("host-1", within=32) == 0
    ended = rig.now()
    every = hanging + waiting
    await until_phase(rig, every, "Succeeded", within=60)
    history = await rig.collect()
    for name in waiting:
        (first, *_) = calls_of(history, name)
        assert first.host != "host-1"
        assert first.begun - asked <= AT_ONCE, (name, first.begun - asked)
        assert (status(history.runs[name])["attempts"], used_up(history.runs[name])) == (1, 1)
    for number, name in enumerate(hanging):
        heirs = [call for call in calls_of(history, name) if call.host != "host-1"]
        assert [call.step for call in heirs] == ["start_session", "admit_turn"][number >= 25 :]
        assert len({call.host for call in heirs}) == 1
        assert heirs[0].begun - ended <= AT_ONCE, (name, heirs[0].begun - ended)
        assert (status(history.runs[name])["attempts"], used_up(history.runs[name])) == (2, 1)
    assert_holds(history)


async def test_ten_rolling_restarts_lose_nothing_and_use_up_no_attempt(rig: Rig) -> None:
    """Two hosts restarted in turn ten times under a stream of runs, with two attempts each: all succeed."""
    env = settings(STOP_TIMEOUT_SECONDS="1", MAX_ATTEMPTS="2")
    await rig.start_hosts(2, env=env)
    long = await enqueue(rig, "host-1", behaving(start_session="hang:15"), 10)
    long += await enqueue(rig, "host-2", behaving(admit_turn="hang:15"), 10)
    short: list[str] = []
    for _ in range(10):
        for leaving, staying in (("host-1", "host-2"), ("host-2", "host-1")):
            stream = asyncio.create_task(_stream(rig, staying, short))
            assert await rig.terminate(leaving, within=12) == 0
            await rig.start_host(leaving, env=env)
            stream.cancel()
            await asyncio.gather(stream, return_exceptions=True)
    await until_phase(rig, long + short, "Succeeded", within=120)
    history = await rig.collect()
    assert ended_as(history, long + short) == {"Succeeded": len(long) + len(short)}
    assert len(short) >= 40
    assert {used_up(history.runs[name]) for name in long + short} == {1}
    assert max(status(history.runs[name])["attempts"] for name in long) > 2, "the restarts cut no call off"
    assert_holds(history)


async def _stream(rig: Rig, host: str, names: list[str]) -> None:
    """Runs of half a second, one after the other, until cancelled between two."""
    door = rig.host(host)
    while True:
        names.append(
            (await door.enqueue(DEPLOYMENT, behaving(admit_turn="hang:0.5"), trigger="manual")).run_id
        )
        await asyncio.sleep(0.5)
