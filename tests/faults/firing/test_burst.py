"""Disable and delete in the middle of a burst: what has not started stays away, everything else runs."""

import asyncio

import pytest

from tests.faults.firing.minutes import (
    MINUTE,
    assert_fired,
    creates,
    cron_at,
    finished_because,
    first_calls,
    install,
    minute_after,
    phases,
    reach,
    run_name,
    schedule,
    skipped,
    until_fired,
    until_shared,
)
from tests.faults.history.check import assert_holds
from tests.faults.history.facts import History
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(540)]

SIZE = 2000
VISIBLE = 5.0
"""pause_visibility_seconds."""
AT_ONCE = 16


def returned(history: History) -> dict[str, float]:
    """When the disable or delete of each schedule returned."""
    return {
        str(command.deployment_id): command.returned
        for command in history.commands
        if command.returned and (command.op == "delete" or (command.schedule or {}).get("enabled") is False)
    }


async def test_disable_and_delete_in_the_middle_of_a_burst(rig: Rig) -> None:
    """PA-01, PA-04, PA-07, FI-11: half of 2,000 go away as they are due: 5 s later none of them starts."""
    await rig.start_operators(2)
    await rig.start_hosts(2)
    every = [f"d{number:04}" for number in range(SIZE)]
    again, gone, on = every[:40], every[800:1000], every[1000:]
    due = minute_after(rig, 75)
    meanwhile, back = due + MINUTE, due + 2 * MINUTE
    often = cron_at(due, meanwhile, back)
    rules = [schedule(each, often if each in again else cron_at(due)) for each in every]
    await install(rig, rules)
    await until_shared(rig, every)
    assert rig.now() < due - 1, "the machine is too slow for this scenario"
    gate = asyncio.Semaphore(AT_ONCE)

    async def end(number: int, deployment: str) -> None:
        async with gate:
            door = rig.host(f"host-{number % 2 + 1}", within=30)
            if deployment in gone:
                await door.delete(deployment)
            else:
                await door.apply(
                    schedule(deployment, often if deployment in again else cron_at(due), enabled=False)
                )

    await reach(rig, due + 0.3)
    await asyncio.gather(*(end(number, each) for number, each in enumerate(every[:1000][::-1])))
    rig.note("half of the schedules are disabled or deleted")
    await until_fired(rig, on, due, within=120)
    await reach(rig, meanwhile + 10)
    for each in again:
        await rig.host("host-1").apply(schedule(each, often))
    await until_fired(rig, again, back, within=back + 40 - rig.now())
    history = await rig.collect(settle=120)
    told, calls, made = returned(history), first_calls(history), creates(history)
    assert len(told) == 1000
    started = [each for each in every[:1000] if run_name(each, due) in calls]
    late = {each: calls[run_name(each, due)].begun - told[each] for each in started}
    assert max(late.values(), default=0.0) <= VISIBLE, max(late.items(), key=lambda pair: pair[1])
    assert len(started) < 1000, "all had started before they were disabled, so that nothing was shown"
    names = [run_name(each, due) for each in on]
    assert phases(history.runs, names) == dict.fromkeys(names, "Succeeded")
    assert_fired(history, on, due, within=60)
    for each in every[:1000]:
        name = run_name(each, due)
        if name in made and name not in calls:
            assert finished_because(history.runs[name]) == ("Cancelled", "ScheduleDisabled")
    assert not {run_name(each, meanwhile) for each in again} & made.keys()
    assert_fired(history, again, back, within=20)
    assert all(skipped(history.schedules[each])[0] <= 1 for each in again)
    assert_holds(history)
