"""The API server is slow, or answers 429 or 500: afterwards everything ends, and nobody hammers it."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractAsyncContextManager

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.history.facts import History
from tests.faults.scenes.calls import assert_called_once
from tests.faults.scenes.minutes import minute_after, until_time
from tests.faults.scenes.processes import start
from tests.faults.scenes.runs import (
    RUN_NOW,
    behaving,
    ended_as,
    enqueue,
    run_name,
    runs_of_deployment,
    until_phase,
)
from tests.faults.scenes.schedules import ONCE_A_YEAR, apply_all, delete_all, schedule
from tests.faults.stage.rig import Rig
from tests.faults.store.refusal import refused
from tests.faults.store.requests import answered

pytestmark = [pytest.mark.faults, pytest.mark.timeout(290)]

PROCESSES = ("operator-1", "operator-2", "host-1", "host-2")
SECONDS = 3.0
"""By which each answer is late: longer than a confirmation is good for."""
NAMES = [f"d{number}" for number in range(12)]


async def staged(rig: Rig) -> None:
    await start(rig, operators=2, hosts=2)
    await apply_all(rig, "host-1", [schedule(name) for name in NAMES])


def once(history: History, due: float) -> None:
    """Each had its run at this due time, called once."""
    names = [run_name(name, due) for name in NAMES]
    assert ended_as(history, names) == {"Succeeded": len(NAMES)}
    assert_called_once(history, names)


@pytest.mark.waits(120)
async def test_slow_for_one_operator_and_then_for_all(rig: Rig) -> None:
    """G1, G2: each answer takes seconds: no due time is lost or doubled; all fire soon after."""
    await staged(rig)
    due = minute_after(rig, 10)
    await until_time(rig, due - 5)
    await rig.proxy("operator-1").slow(SECONDS)
    await until_time(rig, due + 20)
    for process in PROCESSES:
        await rig.proxy(process).slow(SECONDS)
    await until_time(rig, due + 80)
    for process in PROCESSES:
        await rig.proxy(process).mend()
    dues = [due, due + 60]
    await until_phase(rig, [run_name(name, each) for name in NAMES for each in dues], "Succeeded", within=40)
    await delete_all(rig, "host-1", NAMES)
    history = await rig.collect()
    for each in dues:
        once(history, each)
    assert_holds(history)


@pytest.mark.parametrize("code", [429, 500])
async def test_refused_for_twenty_seconds(rig: Rig, code: int) -> None:
    """G1, AL-05: over a due time and with runs in progress: done afterwards, and not hammered."""
    await staged(rig)
    await rig.host("host-1").apply(schedule("edited", ONCE_A_YEAR, n=1))
    due = minute_after(rig, 10)
    await until_time(rig, due - 7)
    hand = [
        name
        for host in ("host-1", "host-2")
        for wait in (2, 6, 12, 18)
        for name in await enqueue(rig, host, behaving(start_session=f"hang:{wait}"))
    ]
    await until_time(rig, due - 3)
    before = await answered(rig, code)
    async with refusing(rig, code):
        assert await refused(lambda: rig.host("host-1").enqueue(RUN_NOW, {}))
        assert await refused(lambda: rig.host("host-2").apply(schedule("edited", ONCE_A_YEAR, n=2)))
        await until_time(rig, due + 17)
    refusals = await answered(rig, code) - before
    wanted = [run_name(name, due) for name in NAMES]
    await until_phase(rig, wanted, "Succeeded", within=60)
    await delete_all(rig, "host-1", NAMES)
    await until_phase(rig, [*wanted, *hand], "Succeeded", within=60)
    history = await rig.collect()
    once(history, due)
    assert_called_once(history, hand)
    assert ended_as(history, history.runs)["Cancelled"] == 0
    assert len(runs_of_deployment(history, RUN_NOW)) == len(hand)
    assert bounded(refusals), refusals
    assert_holds(history)


def refusing(rig: Rig, code: int) -> AbstractAsyncContextManager[None]:
    return rig.answering_429(PROCESSES) if code == 429 else rig.answering_500(PROCESSES)


def bounded(refusals: Counter[str]) -> bool:
    """In 20 s: 12 creates, 4 processes' watches, Leases and lists, 8 runs: a few tries each, no hot loop."""
    return sum(refusals.values()) < 600 and max(refusals.values(), default=0) < 250
