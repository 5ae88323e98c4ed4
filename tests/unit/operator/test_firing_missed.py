"""What was missed: late within the window, or skipped with a trace."""

import asyncio
from datetime import timedelta

import pytest

from astrabox_scheduler_crds.names import deployment_key
from tests.unit.operator.world import START, Operator, World, at


async def test_after_hours_without_operators_nothing_of_them_is_made_up_for(world: World) -> None:
    """FI-01: operators stopped for 3 hours; the window is caught up, the rest leaves a trace."""
    world.schedules.put("a", created=at("09:00"))
    world.now = at("15:00:30")
    operator = world.operator()
    operator.see()
    result = await operator.at(at("15:00:31"))
    assert world.due_names("a")[0] == "14:51"
    assert result.fired == 10
    assert result.skipped == 350


async def test_a_gap_of_years_costs_bounded_work(world: World) -> None:
    """FI-01: O(1) work: two million missed minutes are not enumerated."""
    world.schedules.put("a", created=START - timedelta(days=1500))
    operator = world.operator()
    operator.see()
    result = await operator.at(START)
    assert result.skipped == 1000
    assert result.fired == 10
    entry = operator.entry("a")
    assert entry.skipped is not None
    assert entry.skipped.last_due_time == at("11:50"), "the latest one, exactly"
    assert entry.next_due == at("12:01")


async def test_counting_what_was_missed_holds_up_no_due_time(world: World) -> None:
    """FI-01: a long outage of many schedules: the firing loop counts nothing itself."""
    operator = world.operator()
    for number in range(5):
        world.schedules.put(f"old{number}", created=START - timedelta(days=1500))
    world.schedules.put("y", cron="0 12 * * *", created=START - timedelta(hours=1))
    operator.see()
    result = await operator.firing.drain(START)
    assert world.due_names("y") == ["12:00"]
    assert world.due_names("old4") == [f"11:{minute}" for minute in range(51, 60)] + ["12:00"]
    assert (result.skipped, world.runs.lists) == (0, 0)
    assert await operator.count() == 5000
    assert await operator.count() == 0


async def test_counting_what_was_missed_leaves_the_others_their_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FI-01: the Leases are read, probes answered and statuses written while thousands are being counted."""
    monkeypatch.setattr("astrabox_scheduler_operator.missed.COUNTING_SECONDS", 0.0)
    operator = world.operator()
    for number in range(50):
        world.schedules.put(f"old{number}", cron="*/20 * * * *", created=START - timedelta(days=2))
    operator.see()
    await operator.firing.drain(START)
    turn = asyncio.create_task(operator.missed.turn(operator.firing.idle))
    counted: list[float] = []
    while len(counted) < 200:
        counted.append(operator.sample("skipped_total", reason="OutsideCatchUpWindow"))
        await asyncio.sleep(0)
    turn.cancel()
    assert 0 < counted[-1] < 25 * 143, "one at a time, and pauses between them"


async def test_nothing_is_counted_during_a_burst(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """FI-01: what is due fires first, also what comes due between two that are counted."""
    monkeypatch.setattr("astrabox_scheduler_operator.missed.COUNTING_SECONDS", 0.0)
    monkeypatch.setattr("astrabox_scheduler_operator.missed.COUNTING_PAUSE_SECONDS", 0.0)
    operator = world.operator()
    for name in ("a", "b"):
        world.schedules.put(name, created=START - timedelta(hours=1))
    operator.see()
    await operator.firing.drain(START)
    operator.firing.idle.clear()
    turn = asyncio.create_task(operator.missed.turn(operator.firing.idle))
    for expected in (0, 50, 100):
        for _ in range(20):
            await asyncio.sleep(0)
        assert operator.sample("skipped_total", reason="OutsideCatchUpWindow") == expected
        operator.firing.idle.set()
        await asyncio.sleep(0)
        operator.firing.idle.clear()
    await asyncio.wait_for(turn, 1)


async def one_has_counted(world: World) -> Operator:
    """Of two that start at once and have both passed over the same: the one that has not counted it."""
    first, second = world.operator("op-1"), world.operator("op-2")
    for each in (first, second):
        each.see()
    world.operators = {"op-1"}
    await first.at(START)
    world.operators = {"op-2"}
    await second.firing.drain(START)
    await first.write_status()
    second.see()
    return second


async def test_what_another_operator_has_counted_meanwhile_is_not_counted_again(world: World) -> None:
    """FI-01: two that start at once both take the share of both, until they see each other."""
    world.schedules.put("a", created=START - timedelta(hours=1))
    world.schedules.put("b", created=START - timedelta(hours=1))
    second = await one_has_counted(world)
    assert await second.count() == 0
    counts = {entry.name: entry.skipped.count for entry in second.index if entry.skipped is not None}
    assert counts == {deployment_key("a"): 50, deployment_key("b"): 50}


async def test_what_it_has_counted_beside_a_later_skip_is_not_counted_again_either(world: World) -> None:
    """FI-01: AstraBox was away too, so the status of the first ends with what was skipped for that."""
    world.schedules.put("a", created=START - timedelta(hours=1))
    world.leases.clear()
    world.live.clear()
    second = await one_has_counted(world)
    assert await second.count() == 0
    skipped = second.entry("a").skipped
    assert skipped is not None
    assert skipped.count == 60


async def test_a_status_of_the_far_future_hides_nothing_that_was_missed(world: World) -> None:
    """FI-06: a hand wrote it."""
    schedule = world.schedules.put("a", created=START - timedelta(hours=1))
    operator = world.operator()
    status = schedule.status.changed(last_due_time=START + timedelta(days=9))
    world.schedules._store(schedule.changed(status=status))
    operator.see()
    assert (await operator.at(START)).skipped == 50


async def test_a_gap_that_two_operators_have_found_is_one(world: World) -> None:
    """OB-05: both say it, and the API server keeps it once."""
    world.schedules.put("a", created=START - timedelta(hours=1))
    said = []
    for name in ("op-1", "op-2"):
        operator = world.operator(name)
        operator.see()
        world.operators = {name}
        for seconds in (0, 10):
            await operator.at(START + timedelta(seconds=seconds))
        await operator.reporter.flush()
        said.append(operator.events.onces)
        world.now = START
    assert said == [["OutsideCatchUpWindow/2026-06-01T11:01:00Z/2026-06-01T11:50:00Z"]] * 2


async def test_what_was_missed_is_counted_beside_a_later_skip(world: World) -> None:
    """FI-01: operators and AstraBox were away: counting takes a while, other skips come first."""
    operator = world.operator()
    for name in ("a", "b", "c"):
        world.schedules.put(name, created=START - timedelta(hours=1))
    operator.see()
    world.leases.clear()
    world.live.clear()
    result = await operator.at(START)
    assert result.skipped == 3 * (50 + 10)
    for entry in operator.index:
        assert entry.skipped is not None
        assert (entry.skipped.count, entry.skipped.last_due_time) == (60, at("12:00"))
        assert entry.skipped.reason == "NoAstraBoxProcess"


async def test_without_any_astrabox_process_due_times_are_skipped(world: World) -> None:
    """FI-01: no AstraBox process was there: skipped with a trace, and the next one fires."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:40"))
    await operator.at(at("12:01:21"))
    await operator.at(at("12:02:21"))
    assert world.due_names("a") == []
    world.provider("astrabox-2", at("12:02:30"))
    await operator.at(at("12:03:01"))
    assert world.due_names("a") == ["12:03"]
    assert operator.sample("skipped_total", reason="NoAstraBoxProcess") == 2


async def test_a_provider_that_comes_to_sight_late_is_waited_for(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.leases.clear()
    world.live.clear()
    await operator.at(at("12:01:05"))
    assert world.due_names("a") == []
    world.provider("astrabox-2", at("12:00:59"))
    await operator.at(at("12:01:06"))
    assert world.due_names("a") == ["12:01"]


async def test_nobody_there_is_only_believed_after_a_fresh_list(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.leases.clear()
    world.live.clear()
    world.on_refresh = lambda: world.provider("astrabox-2", at("12:00:50"))
    await operator.at(at("12:01:30"))
    assert operator.attendance.refreshes == 1
    assert world.due_names("a") == ["12:01"]


async def test_nobody_there_is_only_believed_once_the_leases_were_seen_for_a_while(world: World) -> None:
    """FI-14: the API server was away over the due time; AstraBox ran on, and renews when it is back."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:40"))
    operator.attendance.is_steady = False
    await operator.at(at("12:01:40"))
    assert operator.sample("skipped_total", reason="NoAstraBoxProcess") == 0
    world.provider("astrabox-1", at("06:00"))
    await operator.at(at("12:01:45"))
    assert world.due_names("a") == ["12:01"]


async def test_a_lost_status_write_fires_nothing_twice(world: World) -> None:
    """FI-15: the create is done, the status is not written; another operator starts with the old status."""
    first = world.operator("op-1")
    world.schedules.put("a")
    first.see()
    await first.at(at("12:01:01"))
    world.operators.clear()
    second = world.operator("op-2")
    second.see()
    await second.at(at("12:01:11"))
    assert world.runs.creates == ["a-20260601t1201z", "a-20260601t1201z"]
    assert len(world.runs.stored) == 1
    entry = second.entry("a")
    assert entry.last_run == "a-20260601t1201z"
    assert second.sample("fired_total") == 0, "the other one fired it"


async def test_an_outage_longer_than_the_window_gives_no_run(world: World) -> None:
    """FI-15: operators down from 12:58:30 to 13:20, due at 13:00."""
    world.schedules.put("a", cron="0 13 * * *")
    world.now = at("13:20")
    operator = world.operator()
    operator.see()
    await operator.at(at("13:20"))
    assert world.runs.creates == []


async def test_what_was_due_while_disabled_is_not_due(world: World) -> None:
    """PA-01, PA-07: paused at 12:00:40, resumed at 12:02:20: first run 12:03, nothing skipped."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.now = at("12:00:40")
    world.schedules.put("a", enabled=False)
    operator.see()
    await operator.minutes("12:01", "12:02")
    world.now = at("12:02:20")
    world.schedules.put("a", enabled=True, active_since=at("12:02:20"))
    operator.see()
    await operator.minutes("12:02", "12:03")
    await operator.write_status()
    assert world.due_names("a") == ["12:03"]
    assert world.schedules.stored["a"].status.skipped is None


async def test_ten_due_times_of_a_disabled_schedule_are_not_missed(world: World) -> None:
    """PA-07: paused over 10 due times: no counter moves."""
    operator = world.operator()
    world.schedules.put("a", enabled=False)
    operator.see()
    await operator.minutes("12:01", "12:10")
    await operator.write_status()
    status = world.schedules.stored["a"].status
    assert status.skipped is None
    assert status.next_due_time is None
    assert operator.events.written == []
    assert world.runs.creates == []


async def test_five_days_of_pause_are_not_made_up_for(world: World) -> None:
    """PA-03: resumed after 5 days, the next whole minute fires, and only that."""
    world.schedules.put("a", created=START - timedelta(days=5), enabled=False)
    operator = world.operator()
    operator.see()
    world.schedules.put("a", enabled=True)
    operator.see()
    await operator.at(at("12:00:50"))
    await operator.at(at("12:01:00"))
    assert world.due_names("a") == ["12:01"]
    assert operator.sample("skipped_total", reason="OutsideCatchUpWindow") == 0
