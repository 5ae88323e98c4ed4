"""Who tells of a gap: its heir, its former owner, or an operator that stops."""

import asyncio

from astrabox_scheduler_crds.assignment import owner
from astrabox_scheduler_crds.firing import SkipReason
from astrabox_scheduler_operator.entry import Gap
from tests.unit.operator.test_looking_back import after_a_cut, back, change
from tests.unit.operator.world import Operator, World, at


async def shared_after_a_cut(world: World) -> tuple[Operator, Operator]:
    """Who had the schedule when its due times were skipped, and who has it from now on."""
    former = await after_a_cut(world)
    await former.write_status()
    heirs = (f"op-{number}" for number in range(2, 100))
    name = next(each for each in heirs if owner("a", frozenset({former.attendance.identity, each})) == each)
    heir = world.operator(name)
    heir.see()
    return former, heir


async def test_a_former_owner_does_not_tell_what_its_heir_has_fired(world: World) -> None:
    """OB-05: both see the process come back; the heir fires, and nothing was missed in the end."""
    former, heir = await shared_after_a_cut(world)
    back(world)
    for each in (heir, former):
        await each.at(at("12:02:40"))
    assert world.due_names("a") == ["12:01", "12:02"]
    await former.at(at("12:02:50"))
    former.firing.tell_rest()
    await former.reporter.flush()
    assert former.events.written == []


async def test_a_former_owner_tells_what_was_disabled_before_the_process_came_back(world: World) -> None:
    """OB-05: its heir fires nothing of a schedule that is disabled, so it was missed after all."""
    former, heir = await shared_after_a_cut(world)
    change(world, heir, enabled=False)
    former.see()
    back(world)
    for each in (heir, former):
        await each.at(at("12:02:40"))
    assert world.due_names("a") == []
    former.firing.tell_rest()
    await former.reporter.flush()
    ((_, reason, note),) = former.events.written
    assert (reason, note[:26]) == ("DueTimesSkipped", "2 due times were skipped, ")


def test_what_is_counted_later_begins_the_gap_that_is_known(world: World) -> None:
    """OB-05: from the first to the last, whichever of them was told first."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    entry = operator.entry("a")
    entry.settle_skipped(at("12:20"), at("12:25"), 6, SkipReason.MISSED)
    entry.settle_skipped(at("12:01"), at("12:10"), 10, SkipReason.MISSED)
    assert entry.gaps == (Gap(at("12:01"), at("12:25"), 16, SkipReason.MISSED),)
    assert entry.cursor == at("12:25")


async def test_an_event_that_waits_for_the_firing_is_written_at_the_stop(world: World) -> None:
    """OB-05: its writer is cancelled with it in hand."""
    operator = await after_a_cut(world)
    operator.firing.tell_rest()
    operator.firing.idle.clear()
    writer = asyncio.create_task(operator.reporter.run())
    await asyncio.sleep(0)
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)
    await operator.reporter.flush()
    assert len(operator.events.written) == 1
