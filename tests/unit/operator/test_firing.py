"""Which due times fire: the loop driven step by step with an injected clock."""

import asyncio
from datetime import timedelta

import pytest

from astrabox_scheduler_client.errors import Forbidden
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.firing import CATCH_UP_WINDOW
from astrabox_scheduler_operator.firing_loop import MAX_WAIT_SECONDS
from astrabox_scheduler_operator.run_creator import NotDue, guard
from tests.unit.operator.world import MARKER, START, World, at


async def test_every_due_time_gives_one_run_of_its_own(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    await operator.minutes("12:01", "12:05")
    assert world.due_names("a") == ["12:01", "12:02", "12:03", "12:04", "12:05"]


async def test_the_run_says_who_created_it_and_on_what_grounds(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    await operator.at(at("12:01:01"))
    run = world.runs.stored["a-20260601t1201z"]
    schedule = world.schedules.stored["a"]
    assert run.metadata.labels == {labels.DEPLOYMENT_LABEL: "a", labels.ASSIGNEE_LABEL: "astrabox-1"}
    assert run.spec.trigger == "schedule"
    assert run.spec.due_time == at("12:01")
    assert run.spec.payload == schedule.spec.payload
    origin = run.spec.created_by
    assert origin is not None
    assert (origin.identity, origin.at, origin.confirmed_at) == ("op-1", at("12:01:01"), at("12:01:01"))
    assert (origin.schedule_uid, origin.schedule_generation) == (schedule.metadata.uid, 1)


async def test_without_a_live_provider_the_run_waits_unassigned(world: World) -> None:
    """The due time lies within the interval of a provider that has gone since."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.provider("astrabox-1", at("06:00"), until=at("12:01:10"))
    await operator.at(at("12:01:20"))
    assert labels.ASSIGNEE_LABEL not in world.runs.stored["a-20260601t1201z"].metadata.labels


async def test_a_clock_that_jumps_a_day_gives_no_burst(world: World) -> None:
    """FI-06: hourly, 24 hours forward: at most the one inside the window."""
    operator = world.operator()
    world.schedules.put("a", cron="0 * * * *")
    operator.see()
    await operator.at(START + timedelta(days=1) - timedelta(seconds=25))
    assert len(world.runs.creates) == 1
    assert operator.sample("skipped_total", reason="OutsideCatchUpWindow") == 23


async def test_a_clock_step_between_two_looks_loses_nothing(world: World) -> None:
    """FI-08: seven seconds forward across the due time, and a step back after it."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    await operator.at(at("12:00:57"))
    await operator.at(at("12:01:04"))
    await operator.at(at("12:00:58"))
    await operator.at(at("12:01:05"))
    assert world.runs.creates == ["a-20260601t1201z"]
    assert operator.sample("firing_lateness_seconds_sum") == pytest.approx(4.0)


async def test_a_lost_wake_up_costs_seconds(world: World) -> None:
    """FI-10: the wake-up of a schedule is dropped from the heap, and even from the plan."""
    operator = world.operator()
    world.schedules.put("a")
    world.schedules.put("b")
    operator.see()
    await operator.at(at("12:00:56"))
    operator.queue._heap.clear()
    operator.queue.drop("b")
    await operator.at(at("12:01:02"))
    assert world.due_names("a") == ["12:01"]
    assert world.due_names("b") == ["12:01"]


async def test_a_schedule_is_on_time_beside_hundreds_and_old_runs(world: World) -> None:
    """FI-11: 400 schedules in the same minute and 5,000 old runs: no list of runs is ever asked for."""
    operator = world.operator()
    for number in range(400):
        world.schedules.put(f"x{number}")
    world.schedules.put("y")
    operator.see()
    result = await operator.at(at("12:01"))
    assert result.fired == 401
    assert operator.confirm.asked == [401], "one confirmation for all of them"
    assert world.schedules.gets == []


async def test_waits_of_years_are_clamped(world: World) -> None:
    """FI-12: 29 February and 1 January: the loop never sleeps longer than seconds, and nothing fires."""
    operator = world.operator()
    world.schedules.put("leap", cron="0 0 29 2 *")
    world.schedules.put("year", cron="0 0 1 1 *")
    operator.see()
    result = await operator.at(START)
    assert result.fired == 0
    assert operator.firing._pause(result.next_wake) == MAX_WAIT_SECONDS
    assert not result.more


def test_the_guard_refuses_the_future_and_the_past() -> None:
    """FI-16: one place refuses a run that is not due, or older than the window."""
    guard(START, START, CATCH_UP_WINDOW)
    guard(START, START + CATCH_UP_WINDOW, CATCH_UP_WINDOW)
    for now in (START - timedelta(microseconds=1), START + CATCH_UP_WINDOW + timedelta(microseconds=1)):
        with pytest.raises(NotDue, match="due 2026-06-01"):
            guard(START, now, CATCH_UP_WINDOW)


async def test_a_wake_up_before_the_due_time_creates_nothing(world: World) -> None:
    """FI-17: woken 930 ms early, then on time."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    early = await operator.at(at("12:01") - timedelta(milliseconds=930))
    assert world.runs.creates == []
    assert early.next_wake == at("12:01")
    await operator.at(at("12:01"))
    assert world.due_names("a") == ["12:01"]


async def test_watch_events_that_come_twice_give_one_run(world: World) -> None:
    """OO-04: ADDED again after a reconnect, before and after the fire, and an older state too."""
    operator = world.operator()
    old = world.schedules.put("a")
    operator.see()
    operator.see()
    await operator.at(at("12:01"))
    operator.index.upsert(old, world.now)
    operator.see()
    await operator.at(at("12:01:30"))
    assert world.runs.creates == ["a-20260601t1201z"]


async def test_a_payload_edit_changes_no_due_time_and_reaches_the_next_run(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    await operator.at(at("12:01"))
    world.now = at("12:01:59")
    world.schedules.put("a", payload='{"p":"new"}')
    operator.see()
    await operator.at(at("12:02"))
    assert MARKER in world.runs.stored["a-20260601t1201z"].spec.payload
    assert world.runs.stored["a-20260601t1202z"].spec.payload == '{"p":"new"}'


async def test_no_log_line_holds_a_payload(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    operator = world.operator()
    world.schedules.put("a")
    world.schedules.put("b", cron="nonsense")
    operator.see()
    await operator.at(at("12:01"))
    world.runs.fail = lambda _: Forbidden("no", status=403)
    await operator.at(at("12:02"))
    await operator.write_status()
    told = "\n".join(str(vars(record)) for record in caplog.records)
    assert "a-20260601t1201z" in told
    assert MARKER not in told


async def test_the_loop_wakes_for_a_schedule_that_comes_first(world: World) -> None:
    """`run` only waits and steps; a change that is due earlier wakes it, `stop` ends it."""
    operator = world.operator()
    beats: list[int] = []
    task = asyncio.create_task(operator.firing.run(lambda: beats.append(1)))
    await asyncio.sleep(0)
    world.schedules.put("a")
    operator.see()
    world.now = at("12:01")
    operator.firing.wake()
    async with asyncio.timeout(1):
        while not world.runs.stored:  # noqa: ASYNC110 - the loop under test runs in the background
            await asyncio.sleep(0)
        operator.firing.stop()
        await task
    assert len(beats) >= 2
