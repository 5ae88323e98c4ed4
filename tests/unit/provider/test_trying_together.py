"""Many runs that cannot be read or looked at try on together: an overloaded store is left to recover."""

from __future__ import annotations

import heapq
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from astrabox_scheduler_client.errors import ApiError, TooManyRequests, Unreachable
from astrabox_scheduler_crds.run import RunInvocation
from astrabox_scheduler_kubernetes.timing import SharedPauses, Timing
from tests.unit.provider.memory_runs import NOW, World

RUNS = 200
TIMING = Timing()


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def normal(world: World) -> World:
    """With the pauses of a real process."""
    world.desk = replace(world.desk, timing=TIMING, again=SharedPauses(TIMING))
    return world


async def tried_on(world: World, run: RunInvocation | None, end: float) -> None:
    """As many runs as that are taken up again whenever their attempts say so, until second `end`."""
    ready = [(NOW, number) for number in range(RUNS)]
    while ready[0][0] < at(end):
        world.clock.at, number = heapq.heappop(ready)
        again = await world.attempt(run).carry_out()
        assert again is not None
        assert world.clock.at < again <= world.clock.at + timedelta(seconds=TIMING.longest_pause), "not later"
        heapq.heappush(ready, (again, number))


async def test_looks_that_are_refused_become_fewer() -> None:
    world = normal(World())
    world.look_faults = [TooManyRequests("429") for _ in range(RUNS * 30)]
    await tried_on(world, world.run(scheduled=True, age=60.0), 20.0)
    assert RUNS * 5 <= world.looks <= RUNS * 6


async def test_looks_that_are_refused_become_fewer_though_the_runs_can_be_read() -> None:
    """A run with a large payload is read for each look."""
    world = normal(World())
    world.run(scheduled=True, age=60.0)
    world.look_faults = [TooManyRequests("429") for _ in range(RUNS * 30)]
    await tried_on(world, None, 20.0)
    assert RUNS * 5 <= world.looks <= RUNS * 6


async def test_reads_that_are_refused_become_fewer() -> None:
    world, reads = normal(World()), 0

    async def get(name: str) -> RunInvocation:
        nonlocal reads
        reads += 1
        raise Unreachable("away")

    world.runs.get = get  # type: ignore[method-assign]
    await tried_on(world, None, 20.0)
    assert RUNS * 5 <= reads <= RUNS * 6


@pytest.mark.parametrize("what", ["look", "cancelled", "read"])
async def test_the_first_success_makes_them_short_again(what: str) -> None:
    world = normal(World())
    pauses = world.desk.again
    for second in (0, 10, 20):
        pauses.failed(at(second), None)
    assert pauses.failed(at(30), None) == at(35)
    world.enabled = what != "cancelled"
    run = world.run(scheduled=what != "read", age=60.0)
    await world.attempt(None if what == "read" else run).carry_out()
    assert pauses.failed(at(31), None) == at(32)


async def test_a_run_for_which_nothing_was_asked_is_no_success() -> None:
    world = normal(World())
    pauses = world.desk.again
    assert pauses.failed(at(0), None) == at(1)
    await world.attempt(world.run()).carry_out()
    assert pauses.failed(at(2), None) == at(4)


def test_who_fails_in_one_pause_makes_it_grow_once() -> None:
    """Else two hundred failures of one moment would be two hundred doublings."""
    pauses = SharedPauses(TIMING)
    assert [pauses.failed(at(0.01 * number), None) for number in range(3)] == [at(1), at(1.01), at(1.02)]
    assert pauses.failed(at(1), None) == at(3)
    assert pauses.failed(at(1.01), None) == at(3.01)


@pytest.mark.parametrize(("asked", "pause"), [(None, 1.0), (0.5, 1.0), (3.0, 3.0), (60.0, 5.0)])
def test_what_the_server_asks_for_is_honoured_within_the_longest(asked: float | None, pause: float) -> None:
    assert SharedPauses(TIMING).failed(NOW, asked) == at(pause)


@pytest.mark.parametrize("error", [TooManyRequests("429"), Unreachable("away")])
async def test_alone_it_is_tried_after_a_second(error: ApiError) -> None:
    world = normal(World())
    world.look_faults = [error]
    assert await world.attempt(world.run(scheduled=True, age=60.0)).carry_out() == at(1)


async def test_a_run_that_was_deleted_is_no_failure() -> None:
    world = normal(World())
    assert await world.attempt().carry_out() is None
    assert world.desk.again.failed(NOW, None) == at(1)
