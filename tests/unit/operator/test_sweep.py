import asyncio

import pytest

from astrabox_scheduler_client.errors import Unreachable
from astrabox_scheduler_client.schedules import Version
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_operator.sweep import (
    FORGET_SECONDS,
    LASTING_SECONDS,
    LOADING_SECONDS,
    RECHECK_SECONDS,
    SWEEP_SECONDS,
    Sweep,
)
from tests.unit.operator.world import Operator, World, at


def sweep_of(operator: Operator) -> Sweep:
    return Sweep(operator.world.schedules, operator.index, operator.world.clock, operator.metrics)


async def behind(operator: Operator, count: int) -> tuple[Sweep, list[str]]:
    """A sweep that has seen edits of so many schedules, which the watch has not brought; their names."""
    names = [f"s{number}" for number in range(count)]
    for name in names:
        operator.world.schedules.put(name)
    sweep = sweep_of(operator)
    operator.see()
    await sweep.sweep(operator.world.now)
    for name in names:
        operator.world.schedules.put(name, payload='{"p":"new"}')
    await sweep.sweep(operator.world.now)
    return sweep, names


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
    held = {entry.name: entry.version for entry in operator.index if entry.enabled}
    assert held == await world.schedules.enabled_versions()
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


@pytest.mark.parametrize("enabled", [True, False])
async def test_an_object_that_cannot_be_read_holds_up_no_load(world: World, *, enabled: bool) -> None:
    """The list shows it if it is enabled; the index cannot tell. It fires for nobody either way."""
    operator = world.operator()
    world.schedules.put("good")
    odd = world.schedules.put("odd", enabled=enabled)
    operator.see("good")
    operator.index.upsert_unreadable(odd.metadata, ("spec.activeSince",), world.now)
    sweep = sweep_of(operator)
    await sweep.sweep(world.now)
    assert sweep.loaded.is_set()
    for _ in range(3):
        world.monotonic += SWEEP_SECONDS
        assert await sweep.sweep(world.now) == 0
    assert sweep.behind_since is None


async def test_an_object_that_cannot_be_read_is_looked_at_when_it_was_corrected(world: World) -> None:
    """And the watch has not brought it."""
    operator = world.operator()
    odd = world.schedules.put("odd")
    operator.index.upsert_unreadable(odd.metadata, ("spec.activeSince",), world.now)
    sweep = sweep_of(operator)
    await sweep.sweep(world.now)
    world.schedules.put("odd", cron="1 12 * * *")
    await sweep.sweep(world.now)
    world.monotonic += RECHECK_SECONDS
    assert await sweep.sweep(world.now) == 1
    assert [entry.problem for entry in operator.index] == [None]


@pytest.mark.parametrize("enabled", [True, False])
async def test_what_a_restored_store_shows_again_is_believed(world: World, *, enabled: bool) -> None:
    """G1, G8: a restore takes the store back under a live operator; the watch's older one is ignored."""
    operator = world.operator()
    old = world.schedules.put("a", cron="5 12 * * *")
    world.schedules.put("a", cron="6 12 * * *", enabled=enabled)
    operator.see()
    sweep = sweep_of(operator)
    await sweep.sweep(world.now)
    world.schedules.stored["a"] = old
    operator.see()
    world.monotonic += SWEEP_SECONDS
    assert await sweep.sweep(world.now) == 0, "one list may be older than what the watch brought meanwhile"
    assert sweep.pause() == RECHECK_SECONDS
    world.monotonic += RECHECK_SECONDS
    assert await sweep.sweep(world.now) == 1
    (entry,) = operator.index
    assert (entry.version[1], entry.next_due) == (1, at("12:05"))
    world.monotonic += SWEEP_SECONDS
    assert await sweep.sweep(world.now) == 0


async def test_what_the_watch_has_newer_than_a_list_is_loaded(world: World) -> None:
    operator = world.operator()
    for number in range(3):
        world.schedules.put("a", payload=f'"{number}"')
    listed = await world.schedules.enabled_versions()
    world.schedules.put("a", cron="5 12 * * *")
    operator.see()

    async def older() -> dict[str, Version]:
        return listed

    world.schedules.enabled_versions = older  # type: ignore[method-assign]
    sweep = sweep_of(operator)
    await sweep.sweep(world.now)
    assert sweep.loaded.is_set()


class Edited:
    """Lists of schedules that are edited, enabled and disabled while each list is under way."""

    def __init__(self, operator: Operator, *, ahead: bool) -> None:
        self.operator, self.ahead, self.number = operator, ahead, 0

    async def enabled_versions(self) -> dict[str, Version]:
        """`ahead`: the watch has brought the edits when the list comes; else they are still on their way."""
        schedules = self.operator.world.schedules
        schedules.put("c", enabled=False)
        self.operator.see()
        listed = await schedules.enabled_versions()
        self.number += 1
        for name in ("a", "b"):
            schedules.put(name, payload=f'"{self.number}"', enabled=name == "a" or self.number % 2 == 0)
        schedules.put("c", enabled=True)
        schedules.put(f"new{self.number}")
        if self.ahead:
            self.operator.see()
        return listed if self.ahead else await schedules.enabled_versions()

    async def uids(self) -> frozenset[str | None]:
        return await self.operator.world.schedules.uids()

    async def get(self, name: str) -> DeploymentSchedule:
        raise AssertionError(f"{name} is not stale")


@pytest.mark.parametrize("ahead", [True, False])
async def test_edits_without_an_end_delay_no_load_and_are_not_stale(world: World, *, ahead: bool) -> None:
    """Every list differs from the index in something; what was there before has long come."""
    operator = world.operator()
    for name in ("a", "b", "c"):
        world.schedules.put(name)
    operator.see()
    sweep = Sweep(Edited(operator, ahead=ahead), operator.index, world.clock, operator.metrics)
    for number in range(8):
        assert await sweep.sweep(world.now) == 0
        assert sweep.loaded.is_set() or number == 0
        world.monotonic += LASTING_SECONDS
    assert operator.sample("watch_stale_total") == 0
    assert sweep.behind_since is None


async def test_what_the_watch_does_not_bring_is_not_loaded_by_edits_of_it(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    second = world.schedules.put("a", cron="5 12 * * *")
    world.schedules.put("a", cron="6 12 * * *")
    sweep = sweep_of(operator)
    await sweep.sweep(world.now)
    operator.index.upsert(second, world.now)  # nearer, and still older than what was listed
    for number in range(4):
        await sweep.sweep(world.now)
        assert not sweep.loaded.is_set()
        world.schedules.put("a", payload=f'"{number}"')
    operator.see()
    await sweep.sweep(world.now)
    assert sweep.loaded.is_set()


async def test_a_sweep_that_fails_is_not_completed(world: World) -> None:
    """WA-15: its age goes on growing."""
    operator = world.operator()
    sweep = sweep_of(operator)
    world.schedules.fail = Unreachable("refused", reason="NotSent")
    with pytest.raises(Unreachable):
        await sweep.sweep(world.now)
    assert sweep.completed is None


async def test_disabled_schedules_that_went_unseen_are_forgotten(world: World) -> None:
    """Retention took them while the watch had a gap; no list of enabled ones tells."""
    operator = world.operator()
    for name in ("gone", "there", "new"):
        world.schedules.put(name, enabled=False)
    operator.see()
    sweep = sweep_of(operator)
    del world.schedules.stored["gone"], world.schedules.stored["new"]
    world.schedules.put("new", enabled=False)
    await sweep.sweep(world.now)
    assert len(operator.index) == 3, "not in every sweep"
    world.monotonic += FORGET_SECONDS
    operator.see("new")
    await sweep.sweep(world.now)
    assert sorted(entry.name for entry in operator.index) == ["new", "there"]


async def test_many_missed_changes_are_read_side_by_side(world: World) -> None:
    """One by one, 500 slow reads take longer than an operator without a sweep is left alive."""
    operator = world.operator()
    sweep, _ = await behind(operator, 50)
    real, under_way, most = world.schedules.get, 0, 0

    async def get(name: str) -> DeploymentSchedule:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return await real(name)

    world.schedules.get = get  # type: ignore[method-assign]
    world.monotonic += LASTING_SECONDS
    assert await sweep.sweep(world.now) == 50
    assert most > 10


async def test_one_schedule_that_cannot_be_read_again_holds_up_no_other(world: World) -> None:
    """FI-14: and the sweep has completed."""
    operator = world.operator()
    sweep, names = await behind(operator, 20)
    real, bad, asked = world.schedules.get, {"s7", "s8", "s9"}, []

    async def get(name: str) -> DeploymentSchedule:
        asked.append(name)
        await asyncio.sleep(0)
        if name in bad:
            raise Unreachable("no answer", reason="Timeout")
        return await real(name)

    world.schedules.get = get  # type: ignore[method-assign]
    world.monotonic += LASTING_SECONDS
    await sweep.sweep(world.now)
    assert sweep.completed == world.monotonic
    assert {each.name for each in operator.index if each.payload != '{"p":"new"}'} == bad
    bad.update(names)
    for name in names:
        world.schedules.put(name, payload='{"p":"newer"}')
    await sweep.sweep(world.now)
    world.monotonic += LASTING_SECONDS
    asked.clear()
    await sweep.sweep(world.now)
    assert sweep.completed == world.monotonic
    assert len(asked) < len(names), "not all, when nothing gets through"
