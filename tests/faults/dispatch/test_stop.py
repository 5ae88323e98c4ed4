"""stop() under load, as in a rolling update: bounded, nothing lost, nothing counted against a run."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.history.facts import Object
from tests.faults.scenes.calls import calls_of, until_begun
from tests.faults.scenes.objects import status
from tests.faults.scenes.processes import host_settings
from tests.faults.scenes.runs import behaving, ended_as, enqueue, until_phase
from tests.faults.stage.rig import OpenRig, Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(560)]

AT_ONCE = 14.0
"""Seconds in which a run that is handed over is taken up: a sweep, and less than a Lease."""
WHILE_IT_STOPS = 20.0
"""In which what waits is taken up: sooner than the calls in progress are cut off, after 25 s."""


@pytest.mark.xdist_group("both-cores")
async def test_stop_under_load_is_bounded_and_hands_everything_over(rig: Rig) -> None:
    """94 runs, 24 in calls that hang: exit 0 within 32 s; what waits goes on at once, the rest then."""
    await rig.start_host("host-1", env=host_settings(CONCURRENCY=24))
    hanging = await enqueue(rig, "host-1", behaving("host-1", start_session="hang:600"), 12)
    hanging += await enqueue(rig, "host-1", behaving("host-1", admit_turn="hang:600"), 12)
    await until_begun(rig, hanging[:12], "start_session")
    await until_begun(rig, hanging[12:], "admit_turn")
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
        assert first.begun - asked <= WHILE_IT_STOPS, (name, first.begun - asked)
        assert (status(history.runs[name])["attempts"], used_up(history.runs[name])) == (1, 1)
    for number, name in enumerate(hanging):
        heirs = [call for call in calls_of(history, name) if call.host != "host-1"]
        assert [call.step for call in heirs] == ["start_session", "admit_turn"][number >= 12 :]
        assert len({call.host for call in heirs}) == 1
        assert heirs[0].begun - ended <= AT_ONCE, (name, heirs[0].begun - ended)
        assert (status(history.runs[name])["attempts"], used_up(history.runs[name])) == (2, 1)
    assert_holds(history)


@pytest.mark.waits(80)
async def test_ten_rolling_restarts_lose_nothing_and_use_up_no_attempt(open_rig: OpenRig) -> None:
    """Two hosts replaced ten times under a stream of runs, with two attempts each: all succeed."""
    rig = await open_rig(host_settings(STOP_TIMEOUT_SECONDS=1, MAX_ATTEMPTS=2))
    old, new = ("host-1", "host-2"), ("host-3", "host-4")
    await _start(rig, old)
    long = await enqueue(rig, "host-1", behaving(start_session="hang:30"), 10)
    long += await enqueue(rig, "host-2", behaving(admit_turn="hang:30"), 10)
    short: list[str] = []
    for _ in range(10):
        async with _stream(rig, old[0], short):
            await _start(rig, new)
        async with _stream(rig, new[0], short):
            codes = await asyncio.gather(*(rig.terminate(host, within=12) for host in old))
        assert codes == [0, 0]
        old, new = new, old
    await until_phase(rig, long + short, "Succeeded", within=120)
    history = await rig.collect()
    assert ended_as(history, long + short) == {"Succeeded": len(long) + len(short)}
    assert len(short) >= 20
    assert {used_up(history.runs[name]) for name in long + short} == {1}
    assert min(status(history.runs[name])["attempts"] for name in long) > 1, "not every call was cut off"
    assert_holds(history)


def used_up(run: Object) -> int:
    """Attempts that count against the retries."""
    told = status(run)
    return int(told.get("attempts", 0)) - int(told.get("releases", 0))


async def _start(rig: Rig, hosts: Iterable[str]) -> None:
    await asyncio.gather(*(rig.start_host(host) for host in hosts))


@asynccontextmanager
async def _stream(rig: Rig, host: str, names: list[str]) -> AsyncIterator[None]:
    """Two runs a second of half a second meanwhile, and at least one."""
    over = asyncio.Event()

    async def flow() -> None:
        while not over.is_set():
            names.extend(await enqueue(rig, host, behaving(admit_turn="hang:0.5")))
            with suppress(TimeoutError):
                async with asyncio.timeout(0.5):
                    await over.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(flow())
        yield
        over.set()
