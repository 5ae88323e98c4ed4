"""Which due times fire: the loop driven step by step with an injected clock."""

import asyncio
from collections.abc import Collection
from datetime import timedelta

import pytest

from astrabox_scheduler_client.confirm import Confirmed
from astrabox_scheduler_client.errors import Forbidden, NotFound, QuotaExceeded, Unreachable
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.firing import CATCH_UP_WINDOW
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import RunInvocation, RunSpec
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_operator.firing_loop import MAX_WAIT_SECONDS
from astrabox_scheduler_operator.index import MAX_KEPT_PAYLOAD
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
    entry = operator.index.get("a")
    assert entry is not None
    assert entry.skipped is not None
    assert entry.skipped.last_due_time == at("11:50"), "the latest one, exactly"
    assert entry.next_due == at("12:01")


async def test_counting_what_was_missed_holds_up_no_due_time(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FI-01: a long outage of many schedules: what can fire fires first, the counting is cut in pieces."""
    monkeypatch.setattr("astrabox_scheduler_operator.firing_loop.COUNTING_SECONDS", 0.0)
    operator = world.operator()
    for number in range(5):
        world.schedules.put(f"old{number}", created=START - timedelta(days=1500))
    world.schedules.put("y", cron="0 12 * * *", created=START - timedelta(hours=1))
    operator.see()
    first = await operator.firing.step(START)
    assert world.due_names("y") == ["12:00"]
    assert (first.skipped, first.more) == (1000, True)
    rest = await operator.firing.drain(START)
    assert rest.skipped == 4000
    assert world.due_names("old4") == [f"11:{minute}" for minute in range(51, 60)] + ["12:00"]


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


async def test_an_edit_makes_nothing_in_the_past_due(world: World) -> None:
    """FI-03: at 13:50 `0 14` becomes `40 13`: nothing today; a later due time of the new rule fires."""
    operator = world.operator()
    world.schedules.put("a", cron="0 14 * * *")
    operator.see()
    world.now = at("13:50")
    world.schedules.put("a", cron="40 13 * * *")
    operator.see()
    await operator.minutes("13:51", "14:05")
    assert world.due_names("a") == []
    world.schedules.put("a", cron="10 14 * * *")
    operator.see()
    await operator.minutes("14:10", "14:11")
    assert world.due_names("a") == ["14:10"]


async def test_a_minute_just_fired_does_not_fire_again_by_an_edit(world: World) -> None:
    """FI-03: last due 12:03; at 12:04:08 the rule becomes `4 12`."""
    operator = world.operator()
    world.schedules.put("a", cron="3 12 * * *")
    operator.see()
    await operator.at(at("12:03:01"))
    world.now = at("12:04:08")
    world.schedules.put("a", cron="4 12 * * *")
    operator.see()
    await operator.at(at("12:04:09"))
    assert world.due_names("a") == ["12:03"]


async def test_an_edit_that_the_watch_has_not_brought_counts(world: World) -> None:
    """FI-04: at wake-up the schedule is read again; the old rule does not fire."""
    operator = world.operator()
    world.schedules.put("a", cron="5 12 * * *")
    operator.see()
    world.now = at("12:02")
    world.schedules.put("a", cron="30 12 * * *")
    await operator.at(at("12:05:01"))
    assert world.due_names("a") == []
    assert world.schedules.gets == ["a"]
    await operator.at(at("12:30:01"))
    assert world.due_names("a") == ["12:30"]


async def test_an_edit_while_the_confirmation_is_read_counts(world: World) -> None:
    """FI-04: the watch brings the edit between the read and the create."""
    operator = world.operator()
    world.schedules.put("a", cron="5 12 * * *")
    operator.see()

    def edited() -> None:
        world.schedules.put("a", cron="30 12 * * *")
        operator.see()

    operator.confirm.meanwhile = edited
    await operator.at(at("12:05:01"))
    assert world.runs.creates == []


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
    entry = second.index.get("a")
    assert entry is not None
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


async def test_two_operators_fire_two_hundred_due_times_once(world: World) -> None:
    """OO-01: two loops, each convinced that all is its own, 200 due times at the same moment."""
    for number in range(200):
        world.schedules.put(f"s{number}")
    first, second = world.operator("op-1"), world.operator("op-2")
    for each in (first, second):
        each.attendance.operators = lambda each=each: frozenset({each.attendance.identity})  # type: ignore[method-assign,misc]
        each.see()
    await asyncio.gather(first.at(at("12:01")), second.at(at("12:01")))
    assert len(world.runs.stored) == 200
    assert len(world.runs.creates) == 400
    assert first.sample("fired_total") + second.sample("fired_total") == 200
    for each in (first, second):
        assert all(entry.next_due == at("12:02") for entry in each.index)


async def test_a_replica_with_a_slow_clock_does_not_fire_a_deleted_run_again(world: World) -> None:
    """OO-02: the name is gone, and the due time is out of the window: the second guard holds."""
    operator = world.operator()
    world.schedules.put("a", cron="1 12 * * *")
    operator.see()
    await operator.at(at("12:01"))
    world.runs.stored.clear()
    world.operators.clear()
    late = world.operator("op-2")
    late.see()
    await late.at(at("12:11:01"))
    assert world.runs.stored == {}


async def test_a_name_that_is_there_does_not_stop_the_next_due_time(world: World) -> None:
    """OO-03: the run of D was created by somebody else; D is done, D+1 fires on time."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    spec = RunSpec(deployment_id="a", trigger="schedule", due_time=at("12:01"), payload="{}")
    metadata = ObjectMeta(name="a-20260601t1201z", labels={labels.DEPLOYMENT_LABEL: "a"})
    world.runs.put(RunInvocation(metadata=metadata, spec=spec))
    await operator.at(at("12:01:01"))
    await operator.at(at("12:02:00"))
    assert world.due_names("a") == ["12:01", "12:02"]
    assert world.runs.stored["a-20260601t1201z"].spec.payload == "{}", "the run that is there is not touched"


async def test_a_name_of_another_deployment_is_no_success(world: World) -> None:
    """OO-03: AlreadyExists counts only for the same Deployment; else it is skipped, with a condition."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    spec = RunSpec(deployment_id="somebody else", trigger="schedule", due_time=at("12:01"), payload="{}")
    world.runs.put(RunInvocation(metadata=ObjectMeta(name="a-20260601t1201z"), spec=spec))
    await operator.at(at("12:01:01"))
    await operator.write_status()
    status = world.schedules.stored["a"].status
    assert status.skipped is not None
    assert (status.skipped.count, status.skipped.reason) == (1, "NameTaken")
    assert status.last_run is None
    assert [each.reason for each in status.conditions if each.type == "Ready"] == ["NameTaken"]


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


async def test_a_disable_that_the_watch_has_not_brought_counts(world: World) -> None:
    """PA-04: the pause lands before the create, the watch is delayed: nothing is created."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.schedules.put("a", enabled=False)
    await operator.at(at("12:01"))
    assert world.runs.creates == []
    entry = operator.index.get("a")
    assert entry is not None
    assert not entry.enabled


async def test_a_delete_that_the_watch_has_not_brought_counts(world: World) -> None:
    """PA-04: the same for a deleted schedule, and for one that was made anew."""
    operator = world.operator()
    world.schedules.put("a")
    world.schedules.put("b")
    operator.see()
    del world.schedules.stored["a"], world.schedules.stored["b"]
    world.now = at("12:00:59")
    world.schedules.put("b", created=at("12:00:59"), payload='"new"')
    await operator.at(at("12:01"))
    assert operator.index.get("a") is None
    assert world.due_names("a") == []
    assert world.runs.stored["b-20260601t1201z"].spec.payload == '"new"'


async def test_a_confirmation_that_grew_old_creates_nothing(world: World) -> None:
    """PA-04: the age holds at each create; a burst is cut and confirmed again."""
    operator = world.operator()
    for number in range(100):
        world.schedules.put(f"s{number}")
    operator.see()
    ages: list[float] = []
    operator.confirm.takes = 0.5

    def slow(_: RunInvocation) -> None:
        ages.append(world.monotonic - begun[-1])
        world.monotonic += 0.1

    begun: list[float] = []
    operator.confirm.meanwhile = lambda: begun.append(world.monotonic)
    world.runs.fail = slow
    result = await operator.at(at("12:01"))
    assert result.fired == 100
    assert max(ages) <= 2.0 + 0.8, "eight creates are in flight at once and each takes 0.1 s here"
    assert operator.confirm.asked == [100, 77, 54, 31, 8]


async def test_a_list_that_takes_too_long_gives_way_to_a_read_for_each(world: World) -> None:
    """PA-04: no create rests on a list that came too late, and the burst goes on all the same."""
    operator = world.operator()
    for number in range(500):
        world.schedules.put(f"s{number}")
    operator.see()
    operator.confirm.takes = 2.5
    world.now = at("12:01")
    await operator.firing.step(at("12:01"))
    assert world.runs.creates == []
    operator.confirm.takes = 0.0
    await operator.firing.drain(at("12:01"))
    assert len(world.runs.stored) == 500
    assert operator.confirm.asked == [500] + [1] * 500


async def test_a_step_ends_after_two_seconds_however_much_is_due(world: World) -> None:
    """FI-16: the next step reads the clock anew."""
    operator = world.operator()
    for number in range(200):
        world.schedules.put(f"s{number}")
    operator.see()
    operator.firing._burst._choice._took = 100.0
    operator.confirm.takes = 0.1
    world.now, begun = at("12:01"), world.monotonic
    result = await operator.firing.step(at("12:01"))
    assert result.more
    assert world.monotonic - begun < 2.0 + 8 * 0.1


async def test_a_read_for_each_sees_every_change_and_outlives_an_error(world: World) -> None:
    """PA-04, FI-14: the same guarantees without a shared list."""
    operator = world.operator()
    for number in range(30):
        world.schedules.put(f"s{number}")
    operator.see()
    operator.firing._burst._choice._took = 100.0
    world.schedules.put("s1", enabled=False)
    world.schedules.put("s2", payload='"new"')
    real, failing = operator.confirm.versions, ["s3"]

    async def versions(names: Collection[str]) -> Confirmed:
        if set(names) & set(failing):
            raise Unreachable("cut", reason="Cut")
        return await real(names)

    operator.confirm.versions = versions  # type: ignore[method-assign]
    await operator.at(at("12:01"))
    assert len(world.runs.stored) == 28
    assert world.runs.stored["s2-20260601t1201z"].spec.payload == '"new"'
    failing.clear()
    await operator.at(at("12:01:01"))
    assert len(world.runs.stored) == 29
    assert world.due_names("s1") == []


async def test_flips_end_in_the_last_state(world: World) -> None:
    """WA-05: flipped 50 times, last value enabled or disabled: the end state wins."""
    operator = world.operator()
    world.schedules.put("on")
    world.schedules.put("off")
    for number in range(50):
        world.schedules.put("on", enabled=number % 2 == 1)
        world.schedules.put("off", enabled=number % 2 == 0)
        if number % 7 == 0:
            operator.see()
    operator.see()
    await operator.at(at("12:01"))
    assert world.due_names("on") == ["12:01"]
    assert world.due_names("off") == []


async def test_order_within_a_schedule_is_kept_by_retries(world: World) -> None:
    """A create that fails holds up its own later due times, and no other schedule."""
    operator = world.operator()
    world.schedules.put("a")
    world.schedules.put("b")
    operator.see()
    broken = {"a-20260601t1201z"}
    world.runs.fail = lambda run: (
        Unreachable("no answer", reason="Cut") if run.metadata.name in broken else None
    )
    await operator.minutes("12:01", "12:03")
    assert world.due_names("b") == ["12:01", "12:02", "12:03"]
    assert "a-20260601t1202z" not in world.runs.creates
    broken.clear()
    await operator.at(at("12:03:45"))
    assert [name for name in world.runs.creates if name.startswith("a-")][-3:] == [
        "a-20260601t1201z",
        "a-20260601t1202z",
        "a-20260601t1203z",
    ]


async def test_a_failing_create_is_not_repeated_hot(world: World) -> None:
    """AL-05: the quota is used up: few tries, one condition, then skipped; others unaffected."""
    operator = world.operator()
    world.schedules.put("a", cron="1 12 * * *")
    world.schedules.put("b")
    operator.see()
    quota = QuotaExceeded("exceeded quota: count/runinvocations", status=403, reason="Forbidden")
    world.runs.fail = lambda run: quota if run.metadata.name.startswith("a-") else None
    now = at("12:01")
    while now < at("12:12"):
        await operator.at(now)
        await operator.write_status()
        now += timedelta(seconds=1)
    tries = [name for name in world.runs.creates if name.startswith("a-")]
    assert 15 <= len(tries) <= 25
    status = world.schedules.stored["a"].status
    ready = next(each for each in status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "QuotaExceeded")
    assert status.skipped is not None
    assert (status.skipped.count, status.skipped.reason) == (1, "OutsideCatchUpWindow")
    assert len([name for name, _ in world.schedules.patches if name == "a"]) <= 4
    assert len(world.due_names("b")) == 11
    assert operator.sample("create_errors_total", reason="Forbidden") == len(tries)


async def test_a_server_that_asks_to_wait_is_obeyed(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a", cron="1 12 * * *")
    operator.see()
    world.runs.fail = lambda _: Unreachable("busy", reason="TooMany", retry_after=50)
    await operator.at(at("12:01"))
    await operator.at(at("12:01:45"))
    assert len(world.runs.creates) == 1
    await operator.at(at("12:01:50"))
    assert len(world.runs.creates) == 2


async def test_creates_that_are_forbidden_are_told_in_the_condition(world: World) -> None:
    """OB-03: Ready=False with the API's answer; it is True again after the next success."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.runs.fail = lambda _: Forbidden(
        "User x cannot create runinvocations", status=403, reason="Forbidden"
    )
    await operator.at(at("12:01"))
    await operator.write_status()
    status = world.schedules.stored["a"].status
    ready = next(each for each in status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "CreateForbidden")
    assert "cannot create runinvocations" in ready.message
    assert status.last_due_time is None
    world.runs.fail = lambda _: None
    await operator.at(at("12:01:10"))
    await operator.write_status()
    status = world.schedules.stored["a"].status
    assert [each.status for each in status.conditions if each.type == "Ready"] == ["True"]
    assert status.last_due_time == at("12:01")


async def test_a_namespace_that_ends_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """AL-06: the namespace is being deleted: one line, no condition, no hot retry."""
    operator = world.operator()
    for number in range(5):
        world.schedules.put(f"s{number}")
    operator.see()
    ended = Forbidden("ended", status=403, reason="Forbidden", fields=("metadata.namespace",))
    world.runs.fail = lambda _: ended
    await operator.minutes("12:01", "12:03")
    assert [r.getMessage() for r in caplog.records if "namespace" in r.getMessage()] == [
        "the namespace is being deleted, nothing can fire: ended"
    ]
    assert all(entry.trouble is None for entry in operator.index)


async def test_an_api_server_that_is_away_holds_everything_until_it_is_back(world: World) -> None:
    """FI-14: the confirmation does not get through over a due time; later both are fired."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    operator.confirm.fail = Unreachable("refused", reason="NotSent")
    await operator.at(at("12:01"))
    await operator.at(at("12:01:10"))
    assert world.runs.creates == []
    operator.confirm.fail = None
    await operator.at(at("12:01:15"))
    await operator.at(at("12:02"))
    assert world.due_names("a") == ["12:01", "12:02"]


async def test_a_schedule_that_cannot_be_read_holds_up_no_other(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    world.schedules.put("b")
    operator.see()
    world.schedules.put("a", payload='"new"')

    async def fails(name: str) -> None:
        world.schedules.gets.append(name)
        raise Unreachable("cut", reason="Cut")

    world.schedules.get = fails  # type: ignore[method-assign,assignment]
    await operator.at(at("12:01"))
    assert world.due_names("b") == ["12:01"]
    assert world.due_names("a") == []
    await operator.at(at("12:01:04"))
    assert world.schedules.gets == ["a"], "not again before its time"


async def test_only_the_share_of_this_operator_is_fired(world: World) -> None:
    """Each schedule has one owner among the live operators; two that agree create nothing twice."""
    for number in range(60):
        world.schedules.put(f"s{number}")
    first, second = world.operator("op-1"), world.operator("op-2")
    for each in (first, second):
        each.see()
        await each.at(at("12:01"))
    assert len(world.runs.stored) == len(world.runs.creates) == 60
    assert 15 < first.sample("fired_total") < 45


async def test_the_share_of_an_operator_that_goes_is_caught_up(world: World) -> None:
    """OO-05: the owner is stopped at the due time; the other one fires late, exactly once."""
    for number in range(60):
        world.schedules.put(f"s{number}")
    first, second = world.operator("op-1"), world.operator("op-2")
    for each in (first, second):
        each.see()
    await first.at(at("12:01"))
    world.operators.discard("op-2")
    for second_of in range(0, 30, 5):
        await first.at(at("12:01:01") + timedelta(seconds=second_of))
    assert len(world.runs.stored) == 60
    await second.at(at("12:01:40"))
    assert len(world.runs.stored) == 60


async def test_the_others_follow_the_status_of_the_owner(world: World) -> None:
    """What the owner settled is settled for everybody who sees its status."""
    world.schedules.put("a")
    first, second = world.operator("op-1"), world.operator("op-2")
    owner, other = sorted((first, second), key=lambda each: each.attendance.identity != _owner(world, "a"))
    for each in (owner, other):
        each.see()
        await each.at(at("12:01"))
    await owner.write_status()
    other.see()
    entry = other.index.get("a")
    assert entry is not None
    assert entry.next_due == at("12:02")
    world.operators.discard(owner.attendance.identity)
    await other.at(at("12:01:30"))
    assert world.runs.creates == ["a-20260601t1201z"]


def _owner(world: World, name: str) -> str | None:
    from astrabox_scheduler_crds.assignment import owner

    return owner(name, world.operators)


async def test_without_its_own_lease_an_operator_fires_nothing(world: World) -> None:
    """OO-05: fencing: the Lease is not held, before the step and in the middle of a burst."""
    operator = world.operator()
    for number in range(50):
        world.schedules.put(f"s{number}")
    operator.see()
    operator.attendance.is_held = False
    await operator.at(at("12:01"))
    assert world.runs.creates == []
    operator.attendance.is_held = True

    def lost(_: RunInvocation) -> None:
        operator.attendance.is_held = False

    world.runs.fail = lost
    world.now = at("12:01")
    await operator.firing.step(at("12:01"))
    assert len(world.runs.creates) <= 8, "no more than was in flight"


async def test_a_large_payload_is_read_when_it_is_needed(world: World) -> None:
    """AL-04: 300 KiB are not kept in memory, and reach the run verbatim."""
    operator = world.operator()
    text = '{"p":"' + "x" * 300_000 + '"}'
    assert len(text) > MAX_KEPT_PAYLOAD
    world.schedules.put("a", payload=text)
    operator.see()
    entry = operator.index.get("a")
    assert entry is not None
    assert entry.payload is None
    await operator.at(at("12:01"))
    assert world.runs.stored["a-20260601t1201z"].spec.payload == text
    assert world.schedules.gets == ["a"]


@pytest.mark.parametrize("lost", ["age", "lease"])
async def test_what_is_lost_while_a_large_payload_is_read_counts(world: World, lost: str) -> None:
    """PA-04, OO-05: the last look at the confirmation's age and at the Lease is right before the create."""
    operator = world.operator()
    world.schedules.put("a", payload="x" * (MAX_KEPT_PAYLOAD + 1))
    operator.see()
    real = world.schedules.get

    async def slow(name: str) -> DeploymentSchedule:
        if lost == "age":
            world.monotonic += 3
        operator.attendance.is_held = lost != "lease"
        return await real(name)

    world.schedules.get = slow  # type: ignore[method-assign]
    world.now = at("12:01")
    await operator.firing.step(at("12:01"))
    assert world.runs.creates == []
    world.schedules.get = real  # type: ignore[method-assign]
    operator.attendance.is_held = True
    await operator.at(at("12:01:01"))
    assert world.due_names("a") == ["12:01"]


async def test_a_payload_edit_changes_no_due_time_and_reaches_the_next_run(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    await operator.at(at("12:01"))
    world.now = at("12:01:59")
    world.schedules.put("a", payload='"new"')
    operator.see()
    await operator.at(at("12:02"))
    assert MARKER in world.runs.stored["a-20260601t1201z"].spec.payload
    assert world.runs.stored["a-20260601t1202z"].spec.payload == '"new"'


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


async def test_a_run_that_went_away_between_create_and_read_is_tried_again(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    spec = RunSpec(deployment_id="a", trigger="schedule", due_time=at("12:01"), payload="{}")
    world.runs.put(RunInvocation(metadata=ObjectMeta(name="a-20260601t1201z"), spec=spec))
    real = world.runs.get

    async def gone(name: str) -> RunInvocation:
        world.runs.stored.clear()
        raise NotFound("gone", status=404, reason="NotFound")

    world.runs.get = gone  # type: ignore[method-assign]
    await operator.at(at("12:01"))
    world.runs.get = real  # type: ignore[method-assign]
    await operator.at(at("12:01:06"))
    assert world.due_names("a") == ["12:01"]
