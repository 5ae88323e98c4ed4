"""AstraBox edits a schedule whose due time has not fired yet: it fires all the same, or says why not."""

import asyncio
from typing import Any

import pytest

from astrabox_scheduler_client.errors import ApiError, NotServed, ServerError
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import RunInvocation
from astrabox_scheduler_crds.schedule import ScheduleStatus
from astrabox_scheduler_crds.timeline import next_change, replaced
from tests.unit.operator.world import Operator, World, at

NOON = "0 12 * * *"


def edit(world: World, when: str, name: str = "a", **spec: Any) -> None:
    """As a provider writes it."""
    world.now = at(when)
    stored = world.schedules.stored[name]
    since = next_change(stored, world.now)
    enabled = spec.get("enabled", stored.spec.enabled)
    earlier = replaced(stored, since, world.now, enabled=enabled)
    world.schedules.put(name, active_since=since, earlier_rules=earlier, **spec)


def noon(world: World) -> None:
    """Due at 12:00 for weeks."""
    world.now = at("11:00")
    world.schedules.put("a", created=at("06:00"), cron=NOON, active_since=at("06:00"))


def status(world: World) -> ScheduleStatus:
    return world.schedules.stored["a"].status


def fresh(world: World, when: str, identity: str = "op-1") -> Operator:
    world.now = at(when)
    world.operators.clear()
    operator = world.operator(identity)
    operator.see()
    return operator


async def test_an_operator_that_starts_after_an_edit_fires_what_was_due_before_it(world: World) -> None:
    """G1: due 12:00 with AstraBox there, operators away; edited at 12:02, operators back at 12:03."""
    noon(world)
    edit(world, "12:02:10", cron="4 12 * * *", payload='{"p":"new"}')
    operator = fresh(world, "12:03")
    await operator.at(at("12:03:01"))
    run = world.runs.stored["a-20260601t1200z"]
    assert run.spec.payload == '{"p":"new"}'
    assert run.spec.created_by is not None
    assert run.spec.created_by.schedule_generation == 2
    await operator.at(at("12:04:01"))
    await operator.write_status()
    assert world.due_names("a") == ["12:00", "12:04"]
    assert status(world).skipped is None
    assert operator.metrics.registry.get_sample_value("astrabox_scheduler_operator_fired_total") == 2


async def test_the_new_rule_makes_nothing_in_the_past_due(world: World) -> None:
    """FI-03: only the rule that held at a time says whether it was due."""
    noon(world)
    edit(world, "12:02:10", cron="1 12 * * *")
    operator = fresh(world, "12:03")
    await operator.minutes("12:03", "12:05")
    assert world.due_names("a") == ["12:00"]


async def test_what_was_fired_before_the_edit_is_not_asked_for_again(world: World) -> None:
    first = world.operator()
    noon(world)
    first.see()
    await first.at(at("12:00:01"))
    await first.write_status()
    edit(world, "12:02:10", cron="* * * * *")
    assert world.schedules.stored["a"].spec.earlier_rules is None
    second = fresh(world, "12:02:20", "op-2")
    await second.at(at("12:03"))
    assert world.runs.creates == ["a-20260601t1200z", "a-20260601t1203z"]


async def test_a_replica_that_died_before_it_told_of_the_run_leaves_one_run(world: World) -> None:
    """The name is there: success, once, whatever the status knows."""
    first = world.operator()
    noon(world)
    first.see()
    await first.at(at("12:00:01"))
    edit(world, "12:02:10", cron="* * * * *")
    second = fresh(world, "12:02:20", "op-2")
    await second.at(at("12:02:21"))
    await second.write_status()
    assert world.due_names("a") == ["12:00"]
    assert (status(world).last_run, status(world).skipped) == ("a-20260601t1200z", None)
    assert second.sample("fired_total") == 0


async def test_a_status_that_knows_the_new_rule_hides_no_due_time_of_the_old_one(world: World) -> None:
    """A replica wrote that it observed the edit, and died before it had fired what was owed."""
    noon(world)
    edit(world, "12:02:10", cron="* * * * *")
    first = fresh(world, "12:02:15")
    await first.write_status()
    assert status(world).active_since == at("12:02:10")
    second = fresh(world, "12:02:20", "op-2")
    await second.at(at("12:03:01"))
    assert world.due_names("a") == ["12:00", "12:03"]
    await first.at(at("12:03:02"))
    assert len(world.runs.stored) == 2


async def test_a_run_that_has_left_the_history_is_not_made_again(world: World) -> None:
    """Retention keeps it for twice the window; the window ends before."""
    noon(world)
    edit(world, "12:02:10", cron="0 15 * * *")
    operator = fresh(world, "12:10:01")
    await operator.at(at("12:10:01"))
    await operator.write_status()
    assert world.runs.creates == []
    skipped = status(world).skipped
    assert skipped is not None
    assert (skipped.count, skipped.last_due_time, skipped.reason) == (1, at("12:00"), "OutsideCatchUpWindow")
    again = fresh(world, "12:20", "op-2")
    await again.at(at("12:20"))
    await again.write_status()
    assert status(world).skipped == skipped, "counted once"


async def test_an_operator_that_was_cut_off_fires_what_an_edit_replaced(world: World) -> None:
    """A live one: its watch brings the edit late."""
    operator = world.operator()
    noon(world)
    operator.see()
    edit(world, "12:02:10", cron="4 12 * * *")
    world.now = at("12:05")
    operator.see()
    await operator.at(at("12:05"))
    assert world.due_names("a") == ["12:00", "12:04"]


async def test_an_operator_whose_watch_stands_still_learns_of_the_edit_by_the_confirmation(
    world: World,
) -> None:
    """FI-04: it may fire nothing of the old rule that lies after the edit, and all that lies before."""
    operator = world.operator()
    world.schedules.put("a", cron="*/2 * * * *")
    operator.see()
    edit(world, "12:03:10", cron="1-59/2 * * * *")
    await operator.at(at("12:04:01"))
    await operator.at(at("12:05:01"))
    assert world.due_names("a") == ["12:02", "12:05"]


async def test_several_edits_lose_nothing_and_keep_the_order(world: World) -> None:
    world.schedules.put("a", cron="1 12 * * *")
    edit(world, "12:01:10", cron="2 12 * * *")
    edit(world, "12:01:11", cron="3 12 * * *")
    edit(world, "12:01:12", cron="2 12 * * *", time_zone="Africa/Lagos")
    edit(world, "12:01:13", cron="2,9 12 * * *", time_zone="UTC")
    edit(world, "12:02:50", cron="3 13 * * *", time_zone="Africa/Lagos")
    edit(world, "12:04", cron="0 0 1 1 *")
    operator = fresh(world, "12:05")
    await operator.at(at("12:05"))
    assert world.due_names("a") == ["12:01", "12:02", "12:03"]


async def test_two_replicas_make_one_run_of_it(world: World) -> None:
    """One has seen the old rule, one starts; each believes that the schedule is its own."""
    first = world.operator("op-1")
    noon(world)
    first.see()
    edit(world, "12:02:10", cron="4 12 * * *")
    world.now = at("12:03")
    second = world.operator("op-2")
    for each in (first, second):
        each.attendance.operators = lambda each=each: frozenset({each.attendance.identity})  # type: ignore[method-assign,misc]
        each.see()
    await asyncio.gather(first.at(at("12:04:01")), second.at(at("12:04:01")))
    assert sorted(world.runs.creates) == sorted(2 * ["a-20260601t1200z", "a-20260601t1204z"])
    assert world.due_names("a") == ["12:00", "12:04"]


async def test_an_edit_during_the_create_asks_for_the_run_once(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    create = world.runs.create

    async def create_and_edit(run: RunInvocation) -> ObjectMeta:
        created = await create(run)
        edit(world, "12:01:00.500", cron="*/30 * * * *")
        operator.see()
        return created

    world.runs.create = create_and_edit  # type: ignore[method-assign]
    await operator.at(at("12:01"))
    entry = operator.entry("a")
    assert (entry.last_run, entry.next_due) == ("a-20260601t1201z", at("12:30"))
    assert world.runs.creates == ["a-20260601t1201z"]


async def test_another_schedule_of_the_same_name_takes_no_run_over(world: World) -> None:
    """Deleted and made anew during the create."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    create = world.runs.create

    async def create_and_replace(run: RunInvocation) -> ObjectMeta:
        created = await create(run)
        del world.schedules.stored["a"]
        world.schedules.put("a", created=at("12:01:00"), cron=NOON)
        operator.see()
        return created

    world.runs.create = create_and_replace  # type: ignore[method-assign]
    await operator.at(at("12:01"))
    entry = operator.entry("a")
    assert (entry.last_due, entry.last_run) == (None, None)


def test_the_last_due_time_never_goes_back(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    entry = operator.entry("a")
    entry.settle_fired(at("12:03"))
    entry.settle_fired(at("12:02"))
    assert (entry.last_due, entry.next_due) == (at("12:03"), at("12:04"))
    assert entry.last_run == "a-20260601t1203z"


async def test_a_disable_settles_what_had_not_fired_and_says_so(world: World) -> None:
    """G5, and an answer to "why did it not run": once nobody can be about to create it."""
    noon(world)
    edit(world, "12:02:10", enabled=False)
    operator = fresh(world, "12:02:20")
    await operator.at(at("12:02:20"))
    await operator.write_status()
    assert status(world).skipped is None, "a create of another operator may still be under way"
    assert status(world).next_due_time is None
    await operator.at(at("12:02:26"))
    await operator.write_status()
    skipped = status(world).skipped
    assert skipped is not None
    assert (skipped.count, skipped.last_due_time, skipped.reason) == (1, at("12:00"), "ScheduleDisabled")
    assert {each.type: each.status for each in status(world).conditions} == {
        "Ready": "True",
        "Suspended": "True",
    }
    assert world.runs.creates == []
    assert operator.sample("skipped_total", reason="ScheduleDisabled") == 1
    await operator.at(at("12:02:40"))
    await operator.reporter.flush()
    ((_, reason, note),) = operator.events.written
    assert reason == "DueTimesSkipped"
    assert "the schedule was disabled before it could be fired" in note
    again = fresh(world, "12:05", "op-2")
    await again.at(at("12:05"))
    skipped = again.entry("a").skipped
    assert skipped is not None
    assert skipped.count == 1


async def test_a_run_that_another_operator_created_before_the_disable_is_not_counted(world: World) -> None:
    """Its status write may be behind; the run tells."""
    first = world.operator()
    noon(world)
    first.see()
    await first.at(at("12:00:01"))
    edit(world, "12:00:01.500", enabled=False)
    second = fresh(world, "12:00:02", "op-2")
    await second.at(at("12:01"))
    await second.write_status()
    assert (status(world).last_run, status(world).skipped) == ("a-20260601t1200z", None)


@pytest.mark.parametrize(
    "error", [ServerError("away", status=500), NotServed("no such kind", status=404, reason="NotServed")]
)
async def test_a_run_that_cannot_be_read_is_asked_for_again(world: World, error: ApiError) -> None:
    noon(world)
    edit(world, "12:02:10", enabled=False)
    operator = fresh(world, "12:03")
    real = world.runs.get

    async def failing(name: str) -> RunInvocation:
        raise error

    world.runs.get = failing  # type: ignore[method-assign]
    await operator.at(at("12:03"))
    assert operator.sample("skipped_total", reason="ScheduleDisabled") == 0
    world.runs.get = real  # type: ignore[method-assign]
    await operator.at(at("12:03:05"))
    assert operator.sample("skipped_total", reason="ScheduleDisabled") == 1


async def test_a_change_while_the_run_is_looked_for_is_decided_anew(world: World) -> None:
    noon(world)
    edit(world, "12:02:10", enabled=False)
    operator = fresh(world, "12:03")
    real = world.runs.get

    async def get_and_edit(name: str) -> RunInvocation:
        world.runs.get = real  # type: ignore[method-assign]
        edit(world, "12:03:00", cron="5 12 * * *", enabled=True)
        operator.see()
        return await real(name)

    world.runs.get = get_and_edit  # type: ignore[method-assign]
    await operator.at(at("12:03"))
    assert operator.sample("skipped_total", reason="ScheduleDisabled") == 1
    await operator.at(at("12:05:01"))
    assert operator.sample("skipped_total", reason="ScheduleDisabled") == 1
    assert world.due_names("a") == ["12:05"]


async def test_enabled_again_at_once_what_was_settled_stays_settled(world: World) -> None:
    """G5: the first due time after the enable is the first that fires."""
    world.schedules.put("a")
    edit(world, "12:01:10", enabled=False)
    edit(world, "12:01:10", enabled=True)
    operator = fresh(world, "12:01:15")
    await operator.at(at("12:02:01"))
    await operator.write_status()
    assert world.due_names("a") == ["12:02"]
    skipped = status(world).skipped
    assert skipped is not None
    assert (skipped.count, skipped.last_due_time) == (1, at("12:01"))


async def test_an_operator_that_was_cut_off_counts_nothing_of_a_disabled_time(world: World) -> None:
    """The watch replays a disable and an enable ten minutes late: each took effect when it was written."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    await operator.at(at("12:01:01"))
    edit(world, "12:01:10", enabled=False)
    disabled = world.schedules.stored["a"]
    edit(world, "12:04:10", enabled=True)
    world.now = at("12:08:10")
    operator.index.upsert(disabled, world.now)
    operator.see()
    await operator.at(at("12:08:11"))
    await operator.write_status()
    assert world.due_names("a") == ["12:01", "12:05", "12:06", "12:07", "12:08"]
    assert status(world).skipped is None


async def test_disabled_by_hand_an_earlier_rule_fires_no_more(world: World) -> None:
    """G5: kubectl knows nothing of earlier rules."""
    noon(world)
    edit(world, "12:02:10", cron="* * * * *")
    world.now = at("12:02:30")
    world.schedules.put("a", enabled=False)
    operator = fresh(world, "12:02:40")
    await operator.at(at("12:03"))
    assert world.runs.creates == []
    assert world.schedules.gets == [], "and nothing was about to fire"


async def test_nobody_was_there_at_a_due_time_of_the_old_rule(world: World) -> None:
    """G1: skipped for that reason, as any other."""
    noon(world)
    world.provider("astrabox-1", at("12:01"))
    edit(world, "12:02:10", cron="* * * * *")
    operator = fresh(world, "12:02:20")
    await operator.at(at("12:03:01"))
    assert world.due_names("a") == ["12:03"]
    assert operator.sample("skipped_total", reason="NoAstraBoxProcess") == 1
