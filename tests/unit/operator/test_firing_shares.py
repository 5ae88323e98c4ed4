"""Several operators: each has its share, and the name keeps every due time to one run."""

import asyncio
from datetime import timedelta

from astrabox_scheduler_crds.run import RunInvocation
from tests.unit.operator.world import World, at


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


async def test_what_a_live_owner_leaves_lying_is_fired_by_another(world: World) -> None:
    """An owner whose every call is too slow keeps its Lease and fires nothing: its share must not be lost."""
    for number in range(60):
        world.schedules.put(f"s{number}")
    first, second = world.operator("op-1"), world.operator("op-2")
    for each in (first, second):
        each.see()
    await first.at(at("12:01"))
    await first.at(at("12:02:59"))
    mine = len(world.runs.creates)
    assert mine < 120, "all of it belongs to one operator: the test shows nothing"
    for moment in ("12:03:04", "12:03:05", "12:03:10"):
        await first.at(at(moment))
    assert sum(name.endswith("1201z") for name in world.runs.stored) == 60
    assert sum(name.endswith("1202z") for name in world.runs.stored) < 60, "the younger ones are not overdue"
    await second.at(at("12:03:20"))
    assert len(world.runs.stored) == 180
    assert first.sample("fired_total") + second.sample("fired_total") == 180


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
