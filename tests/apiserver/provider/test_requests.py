"""enqueue and list_runs on a real API server."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

import pytest

from astrabox.seams.scheduler import InvalidSchedule, SchedulerUnavailable
from astrabox_scheduler_client.errors import Unreachable
from astrabox_scheduler_crds.labels import DEPLOYMENT_LABEL
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from tests.apiserver.provider.handlers import Held, Instant
from tests.apiserver.provider.scenery import QUICK, Place, true, until


async def test_replay_takes_its_source_from_the_history(place: Place) -> None:
    provider = place.provider()
    first = await provider.enqueue("d", {"n": 1.0}, trigger="manual")
    again = await provider.enqueue("d", {}, trigger="replay", replayed_from_run_id=first.run_id)
    assert repr(again.payload) == "{'n': 1.0}"
    for source, deployment in (
        ("unknown", "d"),
        (first.run_id, "another"),
        ("", "d"),
        ("..", "d"),
        ("../x", "d"),
        ("a/b", "d"),
        ("a%2fb", "d"),
    ):
        with pytest.raises(InvalidSchedule, match="no longer in the history"):
            await provider.enqueue(deployment, {}, trigger="replay", replayed_from_run_id=source)
    with pytest.raises(InvalidSchedule):
        await provider.enqueue("d", {}, trigger="replay")


@pytest.mark.parametrize("carried_out", [True, False])
async def test_enqueue_without_an_answer_saves_one_run(place: Place, carried_out: bool) -> None:
    provider = place.provider()
    store = provider._engine()._store
    acquire = store.acquire
    left = 2

    async def acquire_lossy() -> Any:
        api = await acquire()
        real = type(api.runs).create

        async def create(run: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                return await real(api.runs, run)
            if carried_out:
                await real(api.runs, run)
            raise Unreachable("lost", ambiguous=True)

        api.runs.create = create  # type: ignore[method-assign]
        return api

    store.acquire = acquire_lossy  # type: ignore[method-assign]
    run = await provider.enqueue("d", {}, trigger="manual")
    assert [each.run_id for each in await provider.list_runs("d")] == [run.run_id]


@pytest.mark.parametrize("carried_out", [True, False])
async def test_run_whose_enqueue_has_failed_is_not_started(place: Place, carried_out: bool) -> None:
    """G6, G9: its user is told that it was not saved and asks again: it must not run as well."""
    handler = Instant()
    async with place.running(handler, replace(QUICK, settle=0.3, straggle=3.0)) as provider:
        warm = await provider.enqueue("d", {}, trigger="manual")
        await place.until_phase(warm.run_id, "Succeeded")
        _lose_the_answer(provider, place, carried_out)
        with pytest.raises(SchedulerUnavailable):
            await provider.enqueue("d", {"n": 1}, trigger="manual")
        place.door.open()
        await until(lambda: true(not provider._engine()._requests.unsaved._tasks))
        again = await provider.enqueue("d", {"n": 1}, trigger="manual")
        await place.until_phase(again.run_id, "Succeeded")
        rows = {row.run_id: row for row in await provider.list_runs("d")}
    assert handler.started == [warm.run_id, again.run_id]
    lost = rows.keys() - {warm.run_id, again.run_id}
    assert len(lost) == carried_out
    assert all(rows[name].status == "cancelled" for name in lost)


async def test_run_whose_enqueue_is_cancelled_is_not_started(place: Place) -> None:
    """G6: nobody was told of it, and its user asks again."""
    handler = Instant()
    async with place.running(handler, replace(QUICK, straggle=3.0)) as provider:
        warm = await provider.enqueue("d", {}, trigger="manual")
        await place.until_phase(warm.run_id, "Succeeded")
        (shared,) = provider._engine()._store._by_loop.values()
        assert shared.api is not None
        _hang_after(shared.api.runs, "create", reached := asyncio.Event())
        await _cancelled(provider.enqueue("d", {"n": 1}, trigger="manual"), reached)
        await until(lambda: true(not provider._engine()._requests.unsaved._tasks))
        again = await provider.enqueue("d", {"n": 1}, trigger="manual")
        await place.until_phase(again.run_id, "Succeeded")
        rows = {row.run_id: row.status for row in await provider.list_runs("d")}
    assert handler.started == [warm.run_id, again.run_id]
    assert sorted(rows.values()) == ["cancelled", "completed", "completed"]


async def test_enqueue_that_is_cancelled_after_its_answer_is_taken_back(place: Place) -> None:
    """The client's end hangs, so that the caller never learns that the run was saved."""
    provider = place.provider()
    store = provider._engine()._store
    acquire, reached = store.acquire, asyncio.Event()

    async def acquire_hanging() -> Any:
        store.acquire = acquire  # type: ignore[method-assign]
        api = await acquire()
        _hang_after(api, "aclose", reached)
        return api

    store.acquire = acquire_hanging  # type: ignore[method-assign]
    await _cancelled(provider.enqueue("d", {}, trigger="manual"), reached)
    await until(lambda: true(not provider._engine()._requests.unsaved._tasks))
    assert [row.status for row in await provider.list_runs("d")] == ["cancelled"]


async def test_enqueue_that_is_cancelled_before_its_create_leaves_no_task(place: Place) -> None:
    async with place.running(Instant()) as provider:
        run = await provider.enqueue("d", {}, trigger="manual")
        (shared,) = provider._engine()._store._by_loop.values()
        assert shared.api is not None
        _hang_after(shared.api.runs, "get", reached := asyncio.Event())
        replay = provider.enqueue("d", {}, trigger="replay", replayed_from_run_id=run.run_id)
        await _cancelled(replay, reached)
        assert not provider._engine()._requests.unsaved._tasks
        assert len(await provider.list_runs("d")) == 1


def _hang_after(owner: Any, method: str, reached: asyncio.Event) -> None:
    """Once: the call is carried out, and does not come back."""
    real = getattr(owner, method)

    async def call(*args: Any) -> Any:
        setattr(owner, method, real)
        await real(*args)
        reached.set()
        await asyncio.Event().wait()

    setattr(owner, method, call)


async def _cancelled(call: Coroutine[Any, Any, object], reached: asyncio.Event) -> None:
    """Let it begin, and cancel it when it has come so far."""
    task = asyncio.create_task(call)
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def _lose_the_answer(provider: KubernetesSchedulerProvider, place: Place, carried_out: bool) -> None:
    """Once, and from then on the store is away."""
    (shared,) = provider._engine()._store._by_loop.values()
    assert shared.api is not None
    runs, real = shared.api.runs, shared.api.runs.create

    async def create(run: Any) -> Any:
        runs.create = real  # type: ignore[method-assign]
        if carried_out:
            await real(run)
        place.door.shut()
        raise Unreachable("lost", ambiguous=True)

    runs.create = create  # type: ignore[method-assign]


async def test_history_reads_no_more_payloads_than_it_shows(place: Place) -> None:
    """G7: the newest first, whoever has labelled runs of other Deployments with our key."""
    async with place.running(Held("start_session"), CONCURRENCY="1") as provider:
        prompt = "x" * 40_000
        mine = [
            (await provider.enqueue("d", {"n": n, "p": prompt}, trigger="manual")).run_id for n in range(12)
        ]
        for n in range(6):
            other = await place.create_run(f"other-{n}", payload=f'{{"p":"{prompt}"}}')
            await place.api.runs.patch_labels(other, {DEPLOYMENT_LABEL: "d"})
        calls = place.recorded(provider)
        shown = await provider.list_runs("d", limit=3)
        read = [call.removeprefix("GET ") for call in calls if "d-" in call]
        everything = await provider.list_runs("d", limit=200)
    assert [each.run_id for each in shown] == mine[:-4:-1]
    assert [each.payload["n"] for each in shown] == [11, 10, 9]
    assert [each.run_id for each in everything] == mine[::-1]
    assert set(mine[-3:]) <= set(read)


@pytest.mark.parametrize("number", [5, 120])
async def test_history_goes_over_pages(place: Place, number: int) -> None:
    """More runs than a page has, all wanted; and of one that is taken meanwhile nothing is shown."""
    provider = place.provider()
    runs = [await provider.enqueue("d", {"n": n}, trigger="manual") for n in range(number)]
    assert [each.run_id for each in await provider.list_runs("d", limit=200)] == [
        each.run_id for each in reversed(runs)
    ]
    assert [each.payload["n"] for each in await provider.list_runs("d", limit=4)] == [
        number - 1 - n for n in range(4)
    ]
