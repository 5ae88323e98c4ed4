"""Operators that are gone while AstraBox runs: what was due meanwhile fires late, or leaves a trace."""

import asyncio

import pytest

from tests.faults.firing.fired import LOADED, assert_fired, assert_not_fired, events_about
from tests.faults.history.check import assert_holds
from tests.faults.history.facts import History
from tests.faults.scenes.calls import first_calls
from tests.faults.scenes.minutes import MINUTE, minute_after, until_time
from tests.faults.scenes.processes import operator_settings
from tests.faults.scenes.runs import run_name
from tests.faults.scenes.schedules import cron_at, install, schedule, skipped, until_settled_to, until_shared
from tests.faults.scenes.writes import creates
from tests.faults.stage.rig import OpenRig, Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

PLAIN = [f"plain-{number}" for number in range(8)]
BACK = 30.0
"""Seconds from the start of an operator to the last late run."""
TOLD_BY_ALL = 10.0
"""So long after the first Events an operator that has none to tell would have told one all the same."""


def assert_in_order(history: History, deployment: str, dues: list[float]) -> None:
    """Their runs were created one after the other, as they were due."""
    times = [creates(history)[run_name(deployment, due)][0].received for due in dues]
    assert times == sorted(times), (deployment, times)


@pytest.mark.waits(250)
async def test_three_due_times_without_operators_fire_late_in_order(rig: Rig) -> None:
    """FI-01, FI-03, FI-15, WA-04: each once, in order; an edit counts from itself on; a disable ends all."""
    await rig.start_operators(2)
    await rig.start_hosts(2)
    others = ["recron", "disabled", "deleted", "edited"]
    records = [schedule(each, version=1) for each in (*PLAIN, *others)]
    first = minute_after(rig, 20)
    dues = [first, first + MINUTE, first + 2 * MINUTE]
    back = first + 3 * MINUTE
    await install(rig, [*records, schedule("moved", cron_at(back + 20 * MINUTE))])
    await until_shared(rig, [*PLAIN, *others, "moved"])
    await until_time(rig, first - 6)
    await rig.kill("operator-1")
    await rig.terminate("operator-2", within=32)
    await until_time(rig, first + 20)
    assert rig.now() < first + 40, "the machine is too slow for this scenario"
    await rig.host("host-1").apply(schedule("recron", cron_at(back), version=1))
    await rig.host("host-2").apply(schedule("moved", cron_at(first, back)))
    await rig.host("host-2").apply(schedule("disabled", enabled=False, version=1))
    await rig.host("host-1").delete("deleted")
    await rig.host("host-2").apply(schedule("edited", version=2))
    await until_time(rig, dues[-1] + 5)
    started = rig.now()
    await rig.start_operator("operator-3")
    await until_settled_to(rig, [*PLAIN, "edited"], dues[-1], within=60)
    await until_settled_to(rig, [*PLAIN, "edited", "recron", "moved"], back, within=back + 45 - rig.now())
    history = await rig.collect()
    for due in dues:
        assert_fired(history, [*PLAIN, "edited"], due, within=started + BACK - due)
    for each in [*PLAIN, "edited"]:
        assert_in_order(history, each, dues)
        assert skipped(history.schedules[each]) == (0, "")
    assert_fired(history, ["recron"], first, within=started + BACK - first)
    assert_not_fired(history, ["recron"], dues[1:])
    assert_not_fired(history, ["moved"], [first])
    assert_not_fired(history, ["disabled", "deleted"], [*dues, back])
    assert skipped(history.schedules["disabled"]) == (1, "ScheduleDisabled")
    assert_fired(history, [*PLAIN, "edited", "recron", "moved"], back, within=LOADED)
    called = first_calls(history)
    assert all(called[run_name(each, due)].ended for each in PLAIN for due in dues)
    assert_holds(history)


@pytest.mark.waits(270)
async def test_what_is_older_than_the_window_is_skipped_with_a_trace(open_rig: OpenRig) -> None:
    """FI-01: a window of 90 s: the older due times are counted, and told by one Event; the younger fire."""
    rig = await open_rig(operator_settings(CATCH_UP_WINDOW_SECONDS=90))
    operators = await rig.start_operators(2)
    await rig.start_hosts(1)
    await install(rig, [schedule(each) for each in PLAIN])
    await until_shared(rig, PLAIN)
    first = minute_after(rig, 6)
    dues = [first + MINUTE * number for number in range(4)]
    await until_time(rig, first - 5)
    for operator in operators:
        rig.ask_to_end(operator)
    for operator in operators:
        await rig.ended(operator)
    assert rig.now() < first, "the machine is too slow for this scenario"
    await until_time(rig, dues[-1] + 2)
    started = rig.now()
    await rig.start_operators(2)
    await until_settled_to(rig, PLAIN, dues[-1], within=60)
    await events_about(rig, PLAIN, "DueTimesSkipped", within=60)
    history = await rig.collect()
    await asyncio.sleep(TOLD_BY_ALL)
    told = await events_about(rig, PLAIN, "DueTimesSkipped", within=5)
    assert_not_fired(history, PLAIN, dues[:2])
    for due in dues[2:]:
        assert_fired(history, PLAIN, due, within=started + BACK - due)
    for each in PLAIN:
        assert_in_order(history, each, dues[2:])
        assert skipped(history.schedules[each]) == (2, "OutsideCatchUpWindow")
        (event,) = told[each]
        assert "2 due times were skipped" in event["note"], event["note"]
    assert_holds(history)
