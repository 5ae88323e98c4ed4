"""Several operators: each has its share, and the name keeps every due time to one run."""

import asyncio
from datetime import timedelta

import pytest

from astrabox_scheduler_client.errors import Forbidden, Unreachable
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import RunInvocation
from tests.unit.operator.world import Operator, World, at


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


@pytest.mark.parametrize("trouble", ["read fails", "read is old", "creates fail"])
async def test_what_gets_no_answer_in_time_is_stuck(world: World, trouble: str) -> None:
    """Each way in which nothing gets through; until something is answered, or its due time is settled."""
    operator = world.operator()
    for number in range(3):
        world.schedules.put(f"s{number}")
    operator.see()
    assert not operator.firing.stuck(at("12:01"))
    late = Unreachable("late", reason="Timeout")
    operator.confirm.fail = late if trouble == "read fails" else None
    operator.confirm.takes = 3.0 if trouble == "read is old" else 0.0
    world.runs.fail = lambda _: late if trouble == "creates fail" else None
    world.now = at("12:01")
    for _ in range(3):
        await operator.firing.step(world.now)
        assert operator.firing.stuck(world.now)
        world.now += timedelta(seconds=6)
    assert not answered(operator)
    operator.confirm.fail, operator.confirm.takes, world.runs.fail = None, 0.0, lambda _: None
    await operator.at(at("12:01:50"))
    assert not operator.firing.stuck(world.now)
    assert answered(operator) == world.monotonic
    assert len(world.runs.stored) == 3


def answered(operator: Operator) -> float | None:
    return operator.firing.answered


@pytest.mark.parametrize("what", ["create", "read"])
async def test_what_is_refused_for_good_is_not_stuck(world: World, what: str) -> None:
    """A right or a quota that is lacking is the same for every operator: handing over would not help."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    refusal = Forbidden("no", status=403, reason="Forbidden")
    if what == "create":
        world.runs.fail = lambda _: refusal
    else:
        operator.confirm.fail = refusal
    await operator.at(at("12:01"))
    assert not operator.firing.stuck(at("12:01"))
    assert world.runs.stored == {}


async def test_what_others_have_fired_is_not_stuck(world: World) -> None:
    """Its status says so; and what became another's share is not ours to worry about."""
    operator = world.operator()
    world.schedules.put("a", cron="1 12 * * *")
    operator.see()
    operator.confirm.fail = Unreachable("late", reason="Timeout")
    await operator.at(at("12:01"))
    assert operator.firing.stuck(at("12:01:10"))
    await world.schedules.patch_status("a", {"lastDueTime": "2026-06-01T12:01:00Z", "lastRun": "x"})
    operator.see()
    assert not operator.firing.stuck(at("12:01:20"))


async def test_a_share_that_moves_and_comes_back_is_fired_once_and_counts_nothing_as_skipped(
    world: World,
) -> None:
    """Its create arrived and looked failed; the others went on for longer than the window; it returns."""
    for number in range(20):
        world.schedules.put(f"s{number}")
    first, second = world.operator("op-1"), world.operator("op-2")
    for each in (first, second):
        each.see()
        await each.at(at("12:01"))
        await each.write_status()
    create = world.runs.create

    async def swallowed(run: RunInvocation) -> ObjectMeta:
        await create(run)
        raise Unreachable("no answer", reason="Timeout", ambiguous=True)

    world.runs.create = swallowed  # type: ignore[method-assign]
    await first.at(at("12:02"))
    assert first.firing.stuck(at("12:02"))
    world.runs.create = create  # type: ignore[method-assign]
    first.attendance.is_held = False
    world.operators.discard("op-1")
    for minute in range(2, 20):
        await second.at(at(f"12:{minute:02}:08"))
        await second.write_status()
        await first.at(at(f"12:{minute:02}:09"))
        first.see()
    first.attendance.is_held = True
    world.operators.add("op-1")
    for minute in range(19, 22):
        for each in (first, second):
            await each.at(at(f"12:{minute:02}:10"))
            await each.write_status()
            each.see()
    assert all(len(world.due_names(f"s{number}")) == 21 for number in range(20))
    assert all(item.status.skipped is None for item in world.schedules.stored.values())
    for each in (first, second):
        assert each.sample("skipped_total", reason="OutsideCatchUpWindow") == 0
        assert each.events.written == []
        each.see()
        assert all(entry.next_due == at("12:22") for entry in each.index)


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
    entry = other.entry("a")
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
