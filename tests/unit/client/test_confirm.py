import asyncio
from collections.abc import Callable

import pytest

from astrabox_scheduler_client.confirm import ScheduleConfirm
from astrabox_scheduler_client.errors import ApiError, ServerError
from astrabox_scheduler_client.schedules import Schedules, Version
from astrabox_scheduler_crds.server_clock import ServerClock


class Store(Schedules):
    """Schedules as a table, and how they were read."""

    def __init__(self, **versions: Version) -> None:
        self.table = dict(versions)
        self.gets: list[str] = []
        self.lists = 0
        self.during: Callable[[], None] = lambda: None
        self.fails = False

    async def enabled_versions(self) -> dict[str, Version]:
        self.lists += 1
        await asyncio.sleep(0)
        self.during()
        if self.fails:
            raise ServerError("down")
        return dict(self.table)

    async def version(self, name: str) -> Version | None:
        self.gets.append(name)
        await asyncio.sleep(0)
        if self.fails:
            raise ServerError("down")
        return self.table.get(name)

    async def stored_version(self, name: str) -> Version | None:
        return await self.version(name)


class Clock(ServerClock):
    def __init__(self) -> None:
        self.seconds = 1000.0
        super().__init__(wall=lambda: self.seconds, monotonic=lambda: self.seconds)


async def test_a_few_names_are_read_one_by_one() -> None:
    store = Store(a=("u", 1), b=("v", 2))
    confirmed = await ScheduleConfirm(store, Clock()).versions(["a", "gone", "a"])
    assert dict(confirmed.versions) == {"a": ("u", 1)}
    assert (store.gets, store.lists) == (["a", "gone"], 0)


async def test_many_names_are_read_by_one_list_that_callers_share() -> None:
    store = Store(**{f"s{n}": ("u", n) for n in range(100)})
    confirm = ScheduleConfirm(store, Clock(), batch=3)
    names = [f"s{n}" for n in range(90, 110)]
    results = await asyncio.gather(*(confirm.versions(names) for _ in range(10)))
    assert (store.lists, store.gets) == (1, [])
    assert all(dict(each.versions) == {f"s{n}": ("u", n) for n in range(90, 100)} for each in results)


@pytest.mark.parametrize(("age", "lists"), [(2.0, 1), (2.001, 2)])
async def test_a_list_is_used_while_its_begin_is_young_enough(age: float, lists: int) -> None:
    store, clock = Store(a=("u", 1)), Clock()
    confirm = ScheduleConfirm(store, clock, batch=0)
    first = await confirm.versions(["a"])
    clock.seconds += age
    second = await confirm.versions(["a"])
    assert store.lists == lists
    assert second.fresh(clock.seconds)
    assert first.fresh(clock.seconds) is (lists == 1)


@pytest.mark.parametrize("batch", [0, 20])
async def test_the_age_counts_from_before_the_read(batch: int) -> None:
    store, clock = Store(a=("u", 1)), Clock()
    begun = clock.seconds

    def slow() -> None:
        clock.seconds += 1.5

    store.during = slow
    confirmed = await ScheduleConfirm(store, clock, batch=batch).versions(["a"])
    assert (confirmed.begun, confirmed.at.timestamp()) == (begun, begun)
    assert confirmed.fresh(begun + 2.0)
    assert not confirmed.fresh(begun + 2.1)


async def test_what_was_disabled_after_the_list_is_seen_by_the_next() -> None:
    store, clock = Store(a=("u", 1)), Clock()
    confirm = ScheduleConfirm(store, clock, batch=0)
    await confirm.versions(["a"])
    del store.table["a"]
    clock.seconds += 3
    assert not (await confirm.versions(["a"])).versions


@pytest.mark.parametrize("batch", [0, 20])
async def test_a_failed_read_is_raised_as_itself_and_not_kept(batch: int) -> None:
    store = Store(a=("u", 1), b=("u", 1))
    confirm = ScheduleConfirm(store, Clock(), batch=batch)
    store.fails = True
    with pytest.raises(ServerError):
        await confirm.versions(["a", "b"])
    store.fails = False
    assert set((await confirm.versions(["a", "b"])).versions) == {"a", "b"}


async def test_a_cancelled_caller_spoils_nothing_for_the_others() -> None:
    store = Store(a=("u", 1))
    confirm = ScheduleConfirm(store, Clock(), batch=0)
    first, second = (asyncio.create_task(confirm.versions(["a"])) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    assert dict((await second).versions) == {"a": ("u", 1)}
    assert first.cancelled()


async def test_no_names_need_no_read() -> None:
    store = Store()
    assert not (await ScheduleConfirm(store, Clock()).versions([])).versions
    assert (store.lists, store.gets) == (0, [])


class Cache(Store):
    """One that hangs, or refuses, while the store answers."""

    def __init__(self, refuses: ApiError | None, **versions: Version) -> None:
        super().__init__(**versions)
        self.refuses = refuses

    async def version(self, name: str) -> Version | None:
        if self.refuses is not None:
            raise self.refuses
        await asyncio.Event().wait()
        return None

    async def stored_version(self, name: str) -> Version | None:
        return await super().version(name)


async def answered(confirm: ScheduleConfirm, names: list[str]) -> dict[str, Version] | None:
    """None if none could be read."""
    try:
        confirmed = await confirm.versions(names)
    except ApiError:
        return None
    assert not confirmed.failed
    return dict(confirmed.versions)


@pytest.mark.parametrize("refuses", [None, ServerError("the cache is being filled", status=429)])
async def test_a_cache_that_does_not_answer_is_passed_by_at_the_next_look(
    refuses: ServerError | None,
) -> None:
    confirm = ScheduleConfirm(Cache(refuses, a=("u", 1)), Clock(), patience=0.05)
    assert await answered(confirm, ["a", "gone"]) is None
    assert await answered(confirm, ["a", "gone"]) == {"a": ("u", 1)}


async def test_a_store_that_does_not_answer_either_is_not_asked_for_ever() -> None:
    store = Store(a=("u", 1))
    asked: list[str] = []

    async def stored(name: str) -> Version | None:
        asked.append(name)
        raise ServerError("down")

    store.stored_version = stored  # type: ignore[method-assign]
    confirm = ScheduleConfirm(store, Clock())
    store.fails = True
    for _ in range(2):
        with pytest.raises(ServerError):
            await confirm.versions(["a"])
    store.fails = False
    assert set((await confirm.versions(["a"])).versions) == {"a"}
    assert (store.gets, asked) == (["a", "a"], ["a"])


async def test_what_answers_is_not_asked_again() -> None:
    store = Store(a=("u", 1))
    store.stored_version = store.enabled_versions  # type: ignore[method-assign,assignment]
    await ScheduleConfirm(store, Clock()).versions(["a"])
    assert (store.gets, store.lists) == (["a"], 0)


async def test_one_that_hangs_is_told_apart_when_its_answer_would_not_count_any_more() -> None:
    class Hanging(Store):
        async def version(self, name: str) -> Version | None:
            if name == "b":
                await asyncio.Event().wait()
            return await super().version(name)

    confirm = ScheduleConfirm(Hanging(a=("u", 1), b=("u", 1)), Clock(), patience=0.05)
    confirmed = await confirm.versions(["a", "b"])
    assert dict(confirmed.versions) == {"a": ("u", 1)}
    assert [(name, error.reason) for name, error in confirmed.failed.items()] == [("b", "Timeout")]


async def test_a_look_that_failed_is_forgotten_with_its_schedule() -> None:
    """By the next list: nobody asks for what is gone."""
    store = Store(a=("u", 1), b=("v", 2))
    confirm = ScheduleConfirm(store, Clock(), batch=1)
    store.fails = True
    for name in ("a", "b"):
        with pytest.raises(ServerError):
            await confirm.versions([name])
    store.fails = False
    del store.table["b"]
    await confirm.versions(["a", "c"])
    assert confirm._unheard == {"a"}
