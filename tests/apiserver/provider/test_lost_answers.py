"""Writes of schedules whose answer is lost, or that are cut short: in the end the state is the one told."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from astrabox.seams.scheduler import SchedulerUnavailable
from astrabox_scheduler_client.errors import NotFound, Unreachable
from astrabox_scheduler_crds.deletion import is_deleted
from astrabox_scheduler_crds.schedule import ScheduleSpec
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from tests.apiserver.provider.handlers import rule
from tests.apiserver.provider.scenery import QUICK, Place, true, until
from tests.apiserver.provider.stored import names, stored


def lossy(provider: KubernetesSchedulerProvider, method: str, carried_out: bool, times: int = 10**6) -> None:
    """Let the answers of a write be lost, whether it was carried out or not."""
    store = provider._engine()._store
    acquire = store.acquire
    left = times

    async def acquire_lossy() -> Any:
        api = await acquire()
        real = getattr(type(api.schedules), method)

        async def call(*args: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                return await real(api.schedules, *args)
            if carried_out:
                await real(api.schedules, *args)
            raise Unreachable("lost", ambiguous=True)

        setattr(api.schedules, method, call)
        return api

    store.acquire = acquire_lossy  # type: ignore[method-assign]


@pytest.mark.parametrize("carried_out", [True, False])
async def test_lost_answer_is_found_out(place: Place, carried_out: bool) -> None:
    """Whether the write was carried out or not: in the end it is, and the caller is told so."""
    provider = place.provider()
    lossy(provider, "create", carried_out, times=1)
    lossy(provider, "update", carried_out, times=1)
    await provider.apply(rule())
    await provider.apply(rule(payload={"new": 1}))
    assert (await stored(place)).spec.payload == '{"new":1}'


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("there", [True, False])
async def test_lost_answer_to_a_delete_is_found_out(place: Place, carried_out: bool, there: bool) -> None:
    provider = place.provider()
    if there:
        await place.provider().apply(rule())
    lossy(provider, "update" if there else "create", carried_out, times=1)
    await provider.delete("d")
    assert is_deleted(await stored(place))


async def test_lost_answer_to_a_removal_by_reconcile_is_found_out(place: Place) -> None:
    provider = place.provider(replace(QUICK, recently=0.0))
    await provider.apply(rule())
    lossy(provider, "delete", carried_out=False, times=1)
    await provider.reconcile([])
    assert await names(place) == []
    await provider.stop()


async def test_old_state_is_put_back_when_the_fate_of_an_apply_is_unknown(place: Place) -> None:
    """Carried out, the answer lost, and the store gone: AstraBox rolls back, and so do we."""
    provider = place.provider(replace(QUICK, settle=0.3))
    await provider.apply(rule(payload={"old": 1}))
    old = await stored(place)
    _lose_all_after_write(provider, place, "update")
    with pytest.raises(SchedulerUnavailable):
        await provider.apply(rule(payload={"new": 1}, enabled=False))
    assert (await stored(place)).spec.enabled is False, "the test needs the write to be carried out"
    place.door.open()
    await until(lambda: _is(place, old.spec))
    await until(lambda: true(not len(provider._engine()._schedules._restorer)))
    since = (await stored(place)).spec.active_since
    assert since is not None
    assert old.spec.active_since is not None
    assert since > old.spec.active_since, (
        "operators that saw the other rule are told when this one holds again"
    )
    await provider.stop()


async def test_create_is_undone_when_its_fate_is_unknown(place: Place) -> None:
    provider = place.provider(replace(QUICK, settle=0.3))
    _lose_all_after_write(provider, place, "create")
    with pytest.raises(SchedulerUnavailable):
        await provider.apply(rule())
    assert await names(place) == ["d"]
    place.door.open()
    await until(lambda: _none(place))
    await provider.stop()


async def test_delete_is_undone_when_its_fate_is_unknown(place: Place) -> None:
    provider = place.provider(replace(QUICK, settle=0.3))
    await provider.apply(rule(payload={"old": 1}))
    old = await stored(place)
    _lose_all_after_write(provider, place, "update")
    with pytest.raises(SchedulerUnavailable):
        await provider.delete("d")
    assert is_deleted(await stored(place))
    place.door.open()
    await until(lambda: true(not len(provider._engine()._schedules._restorer)))
    assert await _is(place, old.spec)
    assert (await stored(place)).metadata.labels == old.metadata.labels
    await provider.stop()


async def test_later_apply_replaces_what_was_to_be_put_back(place: Place) -> None:
    provider = place.provider(replace(QUICK, settle=0.3, first_pause=0.5, longest_pause=0.5))
    await provider.apply(rule(payload={"old": 1}))
    _lose_all_after_write(provider, place, "update")
    with pytest.raises(SchedulerUnavailable):
        await provider.apply(rule(payload={"lost": 1}))
    place.door.open()
    await provider.apply(rule(payload={"later": 1}))
    await asyncio.sleep(1.2)
    assert (await stored(place)).spec.payload == '{"later":1}'
    assert not len(provider._engine()._schedules._restorer)
    await provider.stop()


@pytest.mark.parametrize("moment", ["write", "close"])
@pytest.mark.parametrize("method", ["create", "update", "delete"])
async def test_call_that_is_cancelled_leaves_the_old_state(place: Place, method: str, moment: str) -> None:
    """G9: cut short by AstraBox while the write is carried out, or after that and before the call returns."""
    provider = place.provider()
    if method != "create":
        await provider.apply(rule(payload={"old": 1}))
    old = None if method == "create" else (await stored(place)).spec
    reached = _hang_after_write(provider, "create" if method == "create" else "update", moment)
    call = provider.delete("d") if method == "delete" else provider.apply(rule(payload={"new": 1}))
    task = asyncio.create_task(call)
    await reached.wait()
    found = [each.spec.payload for each in (await place.api.schedules.list()).items]
    assert found == ["{}" if method == "delete" else '{"new":1}'], "the write was to be carried out"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: _none(place) if old is None else _is(place, old))
    await until(lambda: true(not len(provider._engine()._schedules._restorer)))
    await provider.stop()


async def test_cancelled_call_does_not_forget_what_was_in_doubt(place: Place) -> None:
    """A call that waits for the restorer and is cancelled leaves it at its work."""
    provider = place.provider(replace(QUICK, settle=0.3, first_pause=0.3, longest_pause=0.3))
    await provider.apply(rule(payload={"old": 1}))
    old = await stored(place)
    _lose_all_after_write(provider, place, "update")
    with pytest.raises(SchedulerUnavailable):
        await provider.apply(rule(payload={"lost": 1}))
    restorer = provider._engine()._schedules._restorer
    take = restorer.take
    taking = asyncio.Event()

    async def slow(name: str) -> Any:
        taking.set()
        return await take(name)

    restorer.take = slow  # type: ignore[method-assign]
    task = asyncio.create_task(provider.apply(rule(payload={"later": 1})))
    await taking.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(restorer) == 1
    restorer.take = take  # type: ignore[method-assign]
    place.door.open()
    await until(lambda: _is(place, old.spec))
    await until(lambda: true(not len(restorer)))
    await provider.stop()


def _hang_after_write(provider: KubernetesSchedulerProvider, method: str, moment: str) -> asyncio.Event:
    """Once: the write is carried out, and then its answer, or the client's end, does not come."""
    store = provider._engine()._store
    acquire = store.acquire
    reached = asyncio.Event()

    async def hang() -> None:
        reached.set()
        await asyncio.Event().wait()

    async def acquire_slow() -> Any:
        api = await acquire()
        real, aclose = getattr(type(api.schedules), method), type(api).aclose

        async def call(*args: Any) -> Any:
            answer = await real(api.schedules, *args)
            if not reached.is_set() and moment == "write":
                await hang()
            return answer

        async def close() -> None:
            await aclose(api)
            if not reached.is_set() and moment == "close":
                await hang()

        setattr(api.schedules, method, call)
        api.aclose = close  # type: ignore[method-assign]
        return api

    store.acquire = acquire_slow  # type: ignore[method-assign]
    return reached


def _lose_all_after_write(provider: KubernetesSchedulerProvider, place: Place, method: str) -> None:
    store = provider._engine()._store
    acquire = store.acquire
    done = False

    async def acquire_lossy() -> Any:
        api = await acquire()
        real = getattr(type(api.schedules), method)

        async def call(*args: Any) -> Any:
            nonlocal done
            if done:
                return await real(api.schedules, *args)
            done = True
            await real(api.schedules, *args)
            place.door.shut()
            raise Unreachable("lost", ambiguous=True)

        setattr(api.schedules, method, call)
        return api

    store.acquire = acquire_lossy  # type: ignore[method-assign]


async def _is(place: Place, spec: ScheduleSpec) -> bool:
    try:
        return _timeless((await stored(place)).spec) == _timeless(spec)
    except NotFound:
        return False


def _timeless(spec: ScheduleSpec) -> ScheduleSpec:
    """Without what tells when its rule held: a change that was undone leaves traces there."""
    return spec.changed(active_since=None, earlier_rules=None)


async def _none(place: Place) -> bool:
    return await names(place) == []
