"""No AstraBox process over due times while operators run: they never run, and each leaves a trace."""

import asyncio
from collections.abc import Mapping

import pytest

from tests.faults.firing.fired import assert_fired, assert_not_fired, events_about
from tests.faults.history.check import assert_holds
from tests.faults.history.facts import Object
from tests.faults.scenes.calls import first_calls, until_begun
from tests.faults.scenes.minutes import MINUTE, minute_after, until_time
from tests.faults.scenes.objects import status
from tests.faults.scenes.processes import host_settings, operator_settings
from tests.faults.scenes.runs import (
    behaving,
    enqueue,
    finished_because,
    phases,
    run_name,
    runs_due_at,
    until_fired,
)
from tests.faults.scenes.schedules import install, schedule, skipped, until_all
from tests.faults.stage.rig import OpenRig, Rig

pytestmark = [pytest.mark.faults]

HOSTS = ("host-1", "host-2")
PLAIN = [f"plain-{number}" for number in range(8)]
NO_PROCESS = "NoAstraBoxProcess"
DECIDED = 21.0 + 10.0
"""Seconds after its due time when it is surely decided that nobody was there."""
STOP = host_settings(STOP_TIMEOUT_SECONDS=1)

_HOUR = [pytest.mark.slow, pytest.mark.timeout(80 * 60)]
AWAY = [
    pytest.param("killed", 3, marks=pytest.mark.timeout(600)),
    pytest.param("stopped", 3, marks=[pytest.mark.slow, pytest.mark.timeout(600)]),
    pytest.param("killed", 60, marks=_HOUR),
    pytest.param("stopped", 60, marks=_HOUR),
]


async def begin_runs(rig: Rig) -> list[str]:
    """Runs that are in progress in each host and cannot end there: their Session is saved."""
    begun = []
    for host in HOSTS:
        begun += await enqueue(rig, host, behaving(host, admit_turn="hang:600"))
    await until_begun(rig, begun, "admit_turn", within=30)
    return begun


async def end_hosts(rig: Rig, way: str) -> float:
    """Stop all hosts in order, or kill them a second before a due time; the first due time without them."""
    if way == "stopped":
        await asyncio.gather(*(rig.terminate(host, within=32) for host in HOSTS))
        return minute_after(rig, 1)
    first = minute_after(rig, 2)
    await until_time(rig, first - 1)
    await asyncio.gather(*(rig.kill(host) for host in HOSTS))
    return first


async def until_skipped(rig: Rig, count: int, within: float) -> None:
    """Wait until the status of each schedule tells so many skipped due times."""
    await until_all(
        rig, PLAIN, lambda each: skipped(each)[0] >= count, within, f"tell of {count} skipped due times"
    )


async def until_cancelled(rig: Rig, due: float, within: float) -> Mapping[str, Object]:
    """Wait until the runs made in the tail of the Leases have been cancelled; they, by name."""
    names = [run_name(each, due) for each in PLAIN]
    seen: Mapping[str, Object] = {}

    async def there() -> bool:
        nonlocal seen
        seen = await runs_due_at(rig, due)
        return set(phases(seen, names).values()) == {"Cancelled"}

    await rig.until(there, within, "the runs of the tail are cancelled")
    return seen


@pytest.mark.waits(250)
@pytest.mark.parametrize(("way", "minutes"), AWAY)
async def test_due_times_without_any_process_never_run(open_rig: OpenRig, way: str, minutes: int) -> None:
    """RT-07: none runs, also later; a count, a reason and an Event tell; runs that had begun go on."""
    rig = await open_rig(operator_settings(CATCH_UP_WINDOW_SECONDS=45))
    await rig.start_operators(2)
    await rig.start_hosts(2, env=STOP)
    await install(rig, [schedule(each) for each in PLAIN])
    begun = await begin_runs(rig)
    first = await end_hosts(rig, way)
    rig.note(f"{way}: the first due time without a host is {first}")
    dues = [first + MINUTE * number for number in range(minutes)]
    tail = 1 if way == "killed" else 0
    skips = minutes - tail
    await until_time(rig, dues[-1])
    await until_skipped(rig, skips, within=DECIDED)
    after = minute_after(rig, 1)
    await asyncio.gather(*(rig.start_host(host) for host in ("host-3", "host-4")))
    if rig.now() > after - 5:  # the due time at which they are surely there
        after += MINUTE
    await until_fired(rig, PLAIN, after, within=after + 30 - rig.now())
    if tail:
        await until_cancelled(rig, first, within=75)
    told = await events_about(rig, PLAIN, "DueTimesSkipped", within=60)
    history = await rig.collect()
    assert_not_fired(history, PLAIN, dues[tail:])
    assert_fired(history, PLAIN, after, within=15)
    for each in PLAIN:
        count, reason = skipped(history.schedules[each])
        assert (count, reason) == (skips, NO_PROCESS) or after > dues[-1] + MINUTE, (each, count, reason)
        assert f"{count} due time" in told[each][0]["note"]
        assert "no AstraBox process was running" in told[each][0]["note"]
    called = first_calls(history)
    for each in PLAIN[: len(PLAIN) * tail]:
        assert finished_because(history.runs[run_name(each, first)]) == ("Cancelled", NO_PROCESS)
        assert run_name(each, first) not in called
    assert phases(history.runs, begun) == dict.fromkeys(begun, "Succeeded")
    assert all(status(history.runs[each])["attempts"] == 2 for each in begun)
    assert_holds(history)
