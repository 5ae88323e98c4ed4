"""The API server is slow, or answers 429 or 500: afterwards everything ends, and nobody hammers it."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractAsyncContextManager

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.history.facts import History
from tests.faults.stage.rig import Rig
from tests.faults.store.requests import answered
from tests.faults.store.scenes import (
    apply_all,
    behaving,
    calls,
    ends,
    minutely,
    next_due,
    refused,
    run_at,
    start,
    until_phase,
    until_time,
)

pytestmark = [pytest.mark.faults, pytest.mark.timeout(290)]

PROCESSES = ("operator-1", "operator-2", "host-1", "host-2")
SECONDS = 3.0
"""By which each answer is late: longer than a confirmation is good for."""
NAMES = [f"d{number}" for number in range(12)]


async def staged(rig: Rig) -> None:
    await start(rig, operators=2, hosts=2)
    await apply_all(rig, "host-1", [minutely(name) for name in NAMES])


async def undue(rig: Rig) -> None:
    """Nothing more is due, so that the history can come to rest."""
    for name in NAMES:
        await rig.host("host-1").delete(name)


def once(history: History, due: float) -> None:
    """Each had its run at this due time, called once."""
    names = [run_at(name, due) for name in NAMES]
    assert ends(history, names) == {"Succeeded": len(NAMES)}
    for name in names:
        assert calls(history, name) == {"start_session": 1, "admit_turn": 1}, name


async def test_slow_for_one_operator_and_then_for_all(rig: Rig) -> None:
    """G1, G2: each answer takes seconds: no due time is lost or doubled; all fire soon after."""
    await staged(rig)
    due = next_due(rig, 10)
    await until_time(rig, due - 5)
    await rig.proxy("operator-1").slow(SECONDS)
    await until_time(rig, due + 20)
    for process in PROCESSES:
        await rig.proxy(process).slow(SECONDS)
    await until_time(rig, due + 80)
    for process in PROCESSES:
        await rig.proxy(process).mend()
    dues = [due, due + 60]
    await until_phase(rig, [run_at(name, each) for name in NAMES for each in dues], {"Succeeded"}, within=40)
    await undue(rig)
    history = await rig.collect()
    for each in dues:
        once(history, each)
    assert_holds(history)


@pytest.mark.parametrize("code", [429, 500])
async def test_refused_for_twenty_seconds(rig: Rig, code: int) -> None:
    """G1, AL-05: over a due time and with runs in progress: done afterwards, and not hammered."""
    await staged(rig)
    await rig.host("host-1").apply(minutely("edited", {"n": 1}, cron="0 0 1 1 *"))
    due = next_due(rig, 10)
    await until_time(rig, due - 7)
    hand = [
        (
            await rig.host(host).enqueue("hand", behaving(start_session=f"hang:{wait}"), trigger="manual")
        ).run_id
        for host in ("host-1", "host-2")
        for wait in (2, 6, 12, 18)
    ]
    await until_time(rig, due - 3)
    before = await answered(rig, code)
    async with refusing(rig, code):
        assert await refused(lambda: rig.host("host-1").enqueue("hand", {}, trigger="manual"))
        assert await refused(lambda: rig.host("host-2").apply(minutely("edited", {"n": 2}, cron="0 0 1 1 *")))
        await until_time(rig, due + 17)
    refusals = await answered(rig, code) - before
    wanted = [run_at(name, due) for name in NAMES]
    await until_phase(rig, wanted, {"Succeeded"}, within=60)
    await undue(rig)
    await until_phase(rig, [*wanted, *hand], {"Succeeded"}, within=60)
    history = await rig.collect()
    once(history, due)
    for name in hand:
        assert calls(history, name) == {"start_session": 1, "admit_turn": 1}, name
    assert ends(history, history.runs)["Cancelled"] == 0
    assert len([run for run in history.runs.values() if run["spec"]["deploymentId"] == "hand"]) == len(hand)
    assert bounded(refusals), refusals
    assert_holds(history)


def refusing(rig: Rig, code: int) -> AbstractAsyncContextManager[None]:
    return rig.answering_429(PROCESSES) if code == 429 else rig.answering_500(PROCESSES)


def bounded(refusals: Counter[str]) -> bool:
    """In 20 s: 12 creates, 4 processes' watches, Leases and lists, 8 runs: a few tries each, no hot loop."""
    return sum(refusals.values()) < 600 and max(refusals.values(), default=0) < 250
