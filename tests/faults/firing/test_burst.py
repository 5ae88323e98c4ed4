"""Disable and delete in the middle of a burst: what has not started stays away, everything else runs."""

import asyncio
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace

import pytest

from astrabox.seams.scheduler import Schedule
from tests.faults.firing.fired import PAUSE_VISIBLE, assert_fired, assert_not_fired
from tests.faults.history.check import assert_holds
from tests.faults.history.facts import History
from tests.faults.history.slack import Slack
from tests.faults.scenes.calls import first_calls
from tests.faults.scenes.minutes import MINUTE, minute_after, until_time
from tests.faults.scenes.runs import finished_because, phases, run_name, until_fired
from tests.faults.scenes.schedules import cron_at, install, schedule, skipped
from tests.faults.scenes.writes import creates
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults]

SIZES = [
    pytest.param(200, marks=pytest.mark.timeout(600)),
    pytest.param(2000, marks=[pytest.mark.slow, pytest.mark.timeout(900)]),
]
AGAIN = 40
"""So many are enabled again."""
AT_ONCE = 16


def returned(history: History) -> dict[str, float]:
    """When the disable or delete of each schedule returned."""
    return {
        str(command.deployment_id): command.returned
        for command in history.commands
        if command.returned and (command.op == "delete" or (command.schedule or {}).get("enabled") is False)
    }


async def end_all(rig: Rig, ending: Sequence[Schedule], gone: Collection[str]) -> None:
    """Disable these, or delete those that are to be gone, many at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def end(number: int, rule: Schedule) -> None:
        async with gate:
            door = rig.host(f"host-{number % 2 + 1}", within=30)
            if rule.deployment_id in gone:
                await door.delete(rule.deployment_id)
            else:
                await door.apply(replace(rule, enabled=False))

    await asyncio.gather(*(end(number, rule) for number, rule in enumerate(ending)))
    rig.note("half of the schedules are disabled or deleted")


def assert_none_starts_late(history: History, ending: Iterable[str], due: float) -> None:
    """Later than is promised after its disable or delete no run has started; what was made is cancelled."""
    told, calls, made = returned(history), first_calls(history), creates(history)
    late = {}
    for each in ending:
        name = run_name(each, due)
        if name in calls:
            late[each] = calls[name].begun - told[each]
        elif name in made:
            assert finished_because(history.runs[name]) == ("Cancelled", "ScheduleDisabled")
    assert max(late.values(), default=0.0) <= PAUSE_VISIBLE, max(late.items(), key=lambda pair: pair[1])
    assert any(seconds < 0 for seconds in late.values()), "nothing had started before"
    assert len(late) < len(told), "all had started before, so that nothing was shown"


@pytest.mark.waits(210)
@pytest.mark.parametrize("size", SIZES)
async def test_disable_and_delete_in_the_middle_of_a_burst(rig: Rig, size: int) -> None:
    """PA-01, PA-04, PA-07: half go away as they are due: 5 s later none of them starts, all others run."""
    await rig.start_operators(2)
    await rig.start_hosts(2)
    every = [f"d{number:04}" for number in range(size)]
    half = size // 2
    again, gone, on = every[:AGAIN], set(every[half - half // 4 : half]), every[half:]
    due = minute_after(rig, 15 + size / 15)
    meanwhile, back = due + MINUTE, due + 2 * MINUTE
    often, once = cron_at(due, meanwhile, back), cron_at(due)
    rules = [schedule(each, often if number < AGAIN else once) for number, each in enumerate(every)]
    await install(rig, rules)
    assert rig.now() < due - 5, "the machine is too slow for this scenario"
    await until_time(rig, due + 0.3)
    await end_all(rig, rules[half - 1 :: -1], gone)
    assert rig.now() < meanwhile, "the machine is too slow for this scenario"
    await until_fired(rig, on, due, within=120)
    await until_time(rig, meanwhile + 10)
    for rule in rules[:AGAIN]:
        await rig.host("host-1").apply(rule)
    await until_fired(rig, again, back, within=back + 40 - rig.now())
    history = await rig.collect(settle=120)
    assert_none_starts_late(history, every[:half], due)
    assert_fired(history, on, due, within=60)
    names = [run_name(each, due) for each in on]
    assert phases(history.runs, names) == dict.fromkeys(names, "Succeeded")
    assert_not_fired(history, again, [meanwhile])
    assert_fired(history, again, back, within=20)
    made = creates(history)
    for each in again:  # what was due before its disable has a run, or the disable has overtaken it
        overtaken = (0, "") if run_name(each, due) in made else (1, "ScheduleDisabled")
        assert skipped(history.schedules[each]) == overtaken, each
    assert_holds(history, Slack(load=60.0))  # the burst alone keeps a small machine busy for so long
