import pytest

from astrabox_scheduler_client.errors import Unreachable
from astrabox_scheduler_operator.sweep import (
    LASTING_SECONDS,
    LOADING_SECONDS,
    RECHECK_SECONDS,
    SWEEP_SECONDS,
    Sweep,
)
from tests.unit.operator.world import Operator, World, at


def sweep_of(operator: Operator) -> Sweep:
    return Sweep(operator.world.schedules, operator.index, operator.world.clock, operator.metrics)


async def test_loaded_once_the_index_holds_what_a_list_shows(world: World) -> None:
    operator, _ = world.operator(), world.schedules.put("a")
    sweep = sweep_of(operator)
    await sweep.sweep(world.now)
    assert not sweep.loaded.is_set()
    operator.see()
    await sweep.sweep(world.now)
    assert sweep.loaded.is_set()


async def test_what_the_watch_missed_is_read_again_and_makes_it_behind(world: World) -> None:
    """WA-12, PA-04: create, edit, disable and delete that the watch never brought; two lists show it."""
    operator = world.operator()
    for name in ("edited", "disabled", "deleted", "same"):
        world.schedules.put(name)
    operator.see()
    sweep = sweep_of(operator)
    assert await sweep.sweep(world.now) == 0
    world.schedules.put("created", cron="1 12 * * *")
    world.schedules.put("edited", cron="5 12 * * *")
    world.schedules.put("disabled", enabled=False)
    del world.schedules.stored["deleted"]
    assert await sweep.sweep(world.now) == 0, "the watch may bring it yet"
    world.monotonic += 5
    assert await sweep.sweep(world.now) == 0
    world.monotonic += LASTING_SECONDS
    assert await sweep.sweep(world.now) == 4
    assert sweep.behind_since is not None
    assert operator.sample("watch_stale_total") == 4
    assert operator.index.enabled_versions() == await world.schedules.enabled_versions()
    assert await sweep.sweep(world.now) == 0
    assert world.schedules.gets.count("same") == 0
    assert sweep.behind_since is not None, "nothing has come through the watch so far"
    sweep.heard()
    healthy: float | None = sweep.behind_since
    assert healthy is None
    await operator.at(at("12:01"))
    assert world.due_names("created") == ["12:01"]


async def test_a_difference_is_looked_at_again_sooner(world: World) -> None:
    """WA-12: behind a dead watch a due time is late by 40 s at most, and equal lists cost no more."""
    operator, _ = world.operator(), world.schedules.put("a")
    sweep = sweep_of(operator)
    assert sweep.pause() == LOADING_SECONDS
    await sweep.sweep(world.now)
    assert sweep.pause() == LOADING_SECONDS
    operator.see()
    await sweep.sweep(world.now)
    assert sweep.pause() == SWEEP_SECONDS
    world.schedules.put("b")
    await sweep.sweep(world.now)
    assert sweep.pause() == RECHECK_SECONDS
    world.monotonic += sweep.pause()
    assert await sweep.sweep(world.now) == 1
    assert sweep.pause() == SWEEP_SECONDS


async def test_what_is_not_loaded_yet_is_not_stale(world: World) -> None:
    """WA-14: ten thousand schedules take a while to come; nobody reads them one by one meanwhile."""
    operator, _ = world.operator(), world.schedules.put("a")
    sweep = sweep_of(operator)
    for _ in range(3):
        assert await sweep.sweep(world.now) == 0
        world.monotonic += LASTING_SECONDS
    assert world.schedules.gets == []
    assert sweep.behind_since is None


async def test_a_schedule_that_changes_all_the_time_is_not_stale(world: World) -> None:
    """A difference counts only if two sweeps in a row saw the same."""
    operator, _ = world.operator(), world.schedules.put("a")
    sweep = sweep_of(operator)
    for number in range(5):
        world.monotonic += LASTING_SECONDS
        await sweep.sweep(world.now)
        world.schedules.put("a", payload=f'"{number}"')
    assert operator.sample("watch_stale_total") == 0


async def test_a_sweep_that_fails_is_not_completed(world: World) -> None:
    """WA-15: its age goes on growing."""
    operator = world.operator()
    sweep = sweep_of(operator)
    world.schedules.fail = Unreachable("refused", reason="NotSent")
    with pytest.raises(Unreachable):
        await sweep.sweep(world.now)
    assert sweep.completed is None
