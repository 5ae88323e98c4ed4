"""The API server is slow, or answers 429 or 500: afterwards everything ends, and nobody hammers it."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus

import pytest

from astrabox_scheduler_crds.firing import CONFIRM_MAX_AGE_SECONDS
from astrabox_scheduler_operator.patience import FIRST_STAYS_SECONDS, PAUSE_SECONDS, STEP_DOWN_SECONDS
from astrabox_scheduler_operator.share import START_SECONDS, TRY_AGAIN_SECONDS
from tests.faults.firing.fired import LOADED, assert_fired
from tests.faults.history.check import assert_holds
from tests.faults.history.facts import History
from tests.faults.scenes.calls import assert_called_once
from tests.faults.scenes.minutes import minute_after, minutes_between, until_time
from tests.faults.scenes.processes import LEASE, start
from tests.faults.scenes.runs import (
    RUN_NOW,
    behaving,
    ended_as,
    enqueue,
    run_name,
    runs_of_deployment,
    until_fired,
    until_phase,
)
from tests.faults.scenes.schedules import (
    ONCE_A_YEAR,
    apply_all,
    delete_all,
    schedule,
    schedules,
    skipped,
    until_settled_to,
)
from tests.faults.stage.rig import Rig
from tests.faults.store.refusal import refused
from tests.faults.store.requests import answered

pytestmark = [pytest.mark.faults, pytest.mark.timeout(290)]

PROCESSES = ("operator-1", "operator-2", "host-1", "host-2")
SECONDS = CONFIRM_MAX_AGE_SECONDS + 0.3
"""By which each answer is late: longer than a confirmation is good for, and far from the 4 s within which a
call for a Lease has to be answered, also where the processes have to wait for a core."""
NAMES = [f"d{number}" for number in range(12)]
LEFT_TO_OTHERS = STEP_DOWN_SECONDS + FIRST_STAYS_SECONDS + LEASE + 10.0
"""Seconds within which others fire what an operator gets no answer for: until it steps down, at worst
until its Lease has run out because its release got lost, and the time to notice and to look again."""
WELL_AGAIN = 15.0
"""Seconds within which what is due fires when the API server answers in time again: retries and a list."""
BACK = PAUSE_SECONDS + TRY_AGAIN_SECONDS + START_SECONDS
"""Seconds after which an operator that has stepped down has a share again, if it is answered in time."""


async def staged(rig: Rig) -> None:
    await start(rig, operators=2, hosts=2)
    await apply_all(rig, "host-1", [schedule(name) for name in NAMES])


def once(history: History, due: float) -> None:
    """Each had its run at this due time, called once."""
    names = [run_name(name, due) for name in NAMES]
    assert ended_as(history, names) == {"Succeeded": len(NAMES)}
    assert_called_once(history, names)


@pytest.mark.waits(160)
async def test_slow_for_one_operator_and_then_for_all(rig: Rig) -> None:
    """G1, G2: who gets nothing through leaves its share to the other; slow for all, one stays and tries."""
    await staged(rig)
    due = minute_after(rig, 10)
    await until_time(rig, due - 5)
    await rig.proxy("operator-1").slow(SECONDS)
    await until_time(rig, due)
    await until_fired(rig, NAMES, due, within=LEFT_TO_OTHERS)
    assert "stepped down" in (await rig.health("operator-1", "readyz"))[1]
    await until_time(rig, due + 52)
    for process in PROCESSES:
        await rig.proxy(process).slow(SECONDS)
    await until_time(rig, due + 80)
    for process in PROCESSES:
        await rig.proxy(process).mend()
    await until_fired(rig, NAMES, due + 60, within=WELL_AGAIN)
    await rig.until(lambda: ready(rig, "operator-1"), BACK, "operator-1 has a share again")
    last = minute_after(rig, 10)
    dues = minutes_between(due, last)
    await until_time(rig, last)
    await until_phase(rig, [run_name(name, each) for name in NAMES for each in dues], "Succeeded", within=40)
    await until_settled_to(rig, NAMES, last, within=20)
    told = [skipped(each) for each in (await schedules(rig)).values()]
    await delete_all(rig, "host-1", NAMES)
    history = await rig.collect()
    assert told == [(0, "")] * len(NAMES), "what others fired is not told as skipped"
    for each in dues:
        once(history, each)
    assert_fired(history, NAMES, due, within=LEFT_TO_OTHERS)
    assert_fired(history, NAMES, due + 60, within=20 + WELL_AGAIN)
    for each in dues[2:]:
        assert_fired(history, NAMES, each, within=LOADED)
    assert len(creators(history, due)) == 1, "the slow one fired nothing"
    assert len(creators(history, last)) == 2, "and has a share again"
    assert_holds(history)


async def ready(rig: Rig, operator: str) -> bool:
    return (await rig.health(operator, "readyz"))[0] == HTTPStatus.OK


def creators(history: History, due: float) -> set[str]:
    """The processes that created the runs of a due time."""
    return {history.runs[run_name(name, due)]["spec"]["createdBy"]["identity"] for name in NAMES}


@pytest.mark.waits(90)
@pytest.mark.parametrize("code", [429, 500])
@pytest.mark.own_plane
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
