"""Many schedules that a disable overtook: settling them holds up nothing that is due."""

import asyncio
from datetime import timedelta

from astrabox_scheduler_crds.run import RunInvocation
from tests.unit.operator.test_firing_edited import NOON, edit, fresh
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
