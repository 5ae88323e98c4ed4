"""Due times that a disable overtook: settling them holds up nothing that is due."""

import asyncio
from datetime import datetime, timedelta

import pytest

from astrabox_scheduler_crds.run import RunInvocation
from tests.unit.operator.test_firing_edited import NOON, edit, fresh, noon
from tests.unit.operator.world import World, at


def disabled_after_noon(world: World, count: int) -> None:
    """Due at 12:00 for weeks, and disabled before anybody has fired that."""
    world.now = at("11:00")
    for number in range(count):
        world.schedules.put(f"s{number}", created=at("06:00"), cron=NOON, active_since=at("06:00"))
    for number in range(count):
        edit(world, "12:02:10", f"s{number}", enabled=False)


async def test_many_that_were_disabled_hold_up_nothing_that_is_due(world: World) -> None:
    """Settled a part in each step, behind what fires."""
    disabled_after_noon(world, 1200)
    world.schedules.put("b", created=at("12:02"), cron="3 12 * * *")
    operator = fresh(world, "12:02:59")
    world.now = at("12:03")
    first = await operator.firing.step(at("12:03"))
    assert (first.fired, first.skipped, first.more) == (1, 500, True)
    rest = await operator.firing.drain(at("12:03"))
    assert first.skipped + rest.skipped == 1200
    assert [each.next_due for each in operator.index if not each.enabled] == [None] * 1200
    assert world.now - at("12:03") == timedelta(0)


async def test_reads_of_what_was_disabled_that_take_long_hold_up_nothing_that_is_due(world: World) -> None:
    """A step looks at them for two seconds."""
    disabled_after_noon(world, 200)
    operator = fresh(world, "12:02:59")
    world.now = at("12:03")
    real = world.runs.get

    async def slow(name: str) -> RunInvocation:
        await asyncio.sleep(0)
        world.monotonic += 0.1  # 16 at a time, 1.6 s each
        return await real(name)

    world.runs.get = slow  # type: ignore[method-assign]
    begun = world.monotonic
    first = await operator.firing.step(at("12:03"))
    assert first.more
    assert world.monotonic - begun < 4.0
    rest = await operator.firing.drain(at("12:03"))
    assert first.skipped + rest.skipped == 200


async def test_enabled_again_what_a_disable_overtook_holds_up_no_due_time(world: World) -> None:
    """G1: what can still come of it counts from the disable, whenever the enable was."""
    world.now = at("11:00")
    world.schedules.put("a", created=at("06:00"), active_since=at("11:59:30"))
    edit(world, "12:00:40", enabled=False)
    edit(world, "12:00:52", enabled=True)
    operator = fresh(world, "12:00:53")
    await operator.at(at("12:00:54"))
    assert operator.sample("skipped_total", reason="ScheduleDisabled") == 0, "a create may be under way"
    await operator.at(at("12:01:01"))
    assert world.due_names("a") == ["12:01"]
    assert operator.sample("skipped_total", reason="ScheduleDisabled") == 1


async def test_a_disable_after_an_edit_counts_from_the_disable(world: World) -> None:
    """The end of the rule that was due was the edit: a create of it may have begun until the disable."""
    noon(world)
    edit(world, "12:00:20", cron="0 15 * * *")
    edit(world, "12:00:40", enabled=False)
    edit(world, "12:00:42", enabled=True)
    operator = fresh(world, "12:00:43")
    await operator.at(at("12:00:54"))
    assert operator.sample("skipped_total", reason="ScheduleDisabled") == 0
    await operator.at(at("12:00:56"))
    assert operator.sample("skipped_total", reason="ScheduleDisabled") == 1


@pytest.mark.parametrize("written", [None, at("23:00")])
async def test_without_a_believable_time_of_the_disable_the_enable_counts(
    world: World, written: datetime | None
) -> None:
    """Written by an older version, or by a hand."""
    noon(world)
    edit(world, "12:00:40", enabled=False)
    edit(world, "12:00:52", enabled=True)
    (rule,) = world.schedules.stored["a"].spec.earlier
    world.schedules.put("a", earlier_rules=(rule.changed(disabled_at=written),))
    operator = fresh(world, "12:01:06")
    await operator.at(at("12:01:06"))
    assert operator.sample("skipped_total", reason="ScheduleDisabled") == 0
    await operator.at(at("12:01:08"))
    assert operator.sample("skipped_total", reason="ScheduleDisabled") == 1
