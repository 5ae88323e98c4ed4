"""Deletes, applies and reconciles from older lists at the same time, in every order of their writes.

`one` reconciles with a list that was read before `two` changed something; each test lets the change
come at one point of the reconcile, or the reconcile at one point of the change.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from astrabox.seams.scheduler import Schedule, SchedulerUnavailable
from astrabox_scheduler_client.errors import AlreadyExists
from astrabox_scheduler_crds.deletion import DELETED_KEPT, deleted, is_deleted
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from tests.apiserver.provider.handlers import rule
from tests.apiserver.provider.meanwhile import before
from tests.apiserver.provider.scenery import QUICK, Place, true, until
from tests.apiserver.provider.stored import by_hand, names, stored

CAREFUL = replace(QUICK, recently=60.0)
"""Long enough that no machine is too slow for it."""


@pytest.fixture
async def one(place: Place) -> Any:
    provider = place.provider(CAREFUL)
    yield provider
    await provider.stop()


@pytest.fixture
async def two(place: Place, one: KubernetesSchedulerProvider) -> Any:
    provider = place.provider(CAREFUL)
    yield provider
    await provider.stop()


async def gone(place: Place) -> bool:
    """Whether nothing can fire, nor any prompt be read."""
    assert is_deleted(await stored(place))
    return await place.api.schedules.version("d") is None and (await stored(place)).spec.payload == "{}"


@pytest.mark.parametrize("there", [True, False])
async def test_a_deleted_schedule_is_not_brought_back_by_an_older_list(
    place: Place, one: KubernetesSchedulerProvider, there: bool
) -> None:
    """G5: whatever becomes of the process that deleted it, and whether it had been created yet."""
    two = place.provider(CAREFUL)
    if there:
        await two.apply(rule())
    await two.delete("d")
    del two
    await one.reconcile([rule()])
    assert await gone(place)
    assert await names(place) == []


@pytest.mark.parametrize("whose", ["another's", "its own"])
async def test_delete_before_the_create_of_a_reconcile(
    place: Place, one: KubernetesSchedulerProvider, two: KubernetesSchedulerProvider, whose: str
) -> None:
    """The reconcile has seen that the schedule is missing, and its create is on its way."""
    sent = before(one, "create", lambda: (two if whose == "another's" else one).delete("d"))
    await one.reconcile([rule()])
    assert sent[0] == "create"
    assert await gone(place)


async def test_create_of_a_reconcile_before_the_write_of_a_delete(
    place: Place, one: KubernetesSchedulerProvider, two: KubernetesSchedulerProvider
) -> None:
    """The delete has seen that there is nothing, and the create comes before its tombstone."""
    sent = before(two, "create", lambda: one.reconcile([rule()]))
    await two.delete("d")
    assert sent == ["create", "update"]
    assert await gone(place)


async def test_create_of_a_reconcile_that_arrives_after_its_process_is_lost(
    place: Place, two: KubernetesSchedulerProvider
) -> None:
    """Nobody is left to look again, and nobody has to: the name is taken."""
    one = place.provider(CAREFUL)
    on_its_way = asyncio.Event()

    async def killed() -> None:
        on_its_way.set()
        await asyncio.Event().wait()

    before(one, "create", killed)
    task = asyncio.create_task(one.reconcile([rule()]))
    await on_its_way.wait()
    await two.delete("d")
    with pytest.raises(AlreadyExists):  # what was on its way arrives
        await by_hand(place)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert await gone(place)
    await one.stop()


CHANGES: dict[str, Callable[[KubernetesSchedulerProvider], Awaitable[None]]] = {
    "delete": lambda two: two.delete("d"),
    "disable": lambda two: two.apply(rule(enabled=False)),
    "edit": lambda two: two.apply(rule(payload={"newer": 1})),
    "cron": lambda two: two.apply(rule(cron="7 7 * * *")),
}


@pytest.mark.parametrize("moment", ["before the list", "before the write"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_is_not_undone_by_an_older_list(place: Place, change: str, moment: str) -> None:
    """The older list has another payload than both, so that there is something to write."""
    await by_hand(place)
    one, two = place.provider(CAREFUL), place.provider(CAREFUL)
    if moment == "before the list":
        await CHANGES[change](two)
    else:
        sent = before(one, "update", lambda: CHANGES[change](two))
    await one.reconcile([rule(payload={"old": 1})])
    found = await stored(place)
    spec = found.spec
    seen = (is_deleted(found), spec.enabled, spec.payload, spec.cron)
    assert (
        seen
        == {
            "delete": (True, False, "{}", "* * * * *"),
            "disable": (False, False, '{"prompt":"p"}', "* * * * *"),
            "edit": (False, True, '{"newer":1}', "* * * * *"),
            "cron": (False, True, '{"prompt":"p"}', "7 7 * * *"),
        }[change]
    )
    if moment == "before the write":
        assert sent == ["update"], "the version that it rested on was old, and the new one is left alone"
    await one.stop()


async def _payload(place: Place) -> str:
    return (await stored(place)).spec.payload


async def test_an_apply_before_the_removal_by_an_older_list(
    place: Place, one: KubernetesSchedulerProvider, two: KubernetesSchedulerProvider
) -> None:
    """The list has no such schedule, and what is removed is what was looked at."""
    await by_hand(place)
    sent = before(one, "delete", lambda: two.apply(rule(payload={"new": 1})))
    await one.reconcile([])
    assert sent == ["delete"]
    assert await _payload(place) == '{"new":1}'


async def test_a_status_written_meanwhile_does_not_hold_up_a_removal(
    place: Place, one: KubernetesSchedulerProvider
) -> None:
    await by_hand(place)
    before(one, "delete", lambda: place.api.schedules.patch_status("d", {"lastRun": "r"}))
    await one.reconcile([])
    assert [each.metadata.name for each in (await place.api.schedules.list()).items] == []


async def test_an_apply_before_the_create_of_an_older_list(
    place: Place, one: KubernetesSchedulerProvider, two: KubernetesSchedulerProvider
) -> None:
    before(one, "create", lambda: two.apply(rule(payload={"new": 1}, enabled=False)))
    await one.reconcile([rule(payload={"old": 1})])
    found = (await stored(place)).spec
    assert (found.payload, found.enabled) == ('{"new":1}', False)


async def test_two_lists_of_different_age_at_once(
    place: Place, one: KubernetesSchedulerProvider, two: KubernetesSchedulerProvider
) -> None:
    """The newer one lacks what was deleted and has an edit; whoever writes last, the newer state holds."""
    three = place.provider(CAREFUL)
    older: list[Schedule] = [rule("d"), rule("e", payload={"old": 1}), rule("f")]
    newer: list[Schedule] = [rule("e", payload={"new": 1}), rule("f")]
    await three.delete("d")
    await three.apply(newer[0])
    before(one, "create", lambda: two.reconcile(newer))
    await asyncio.gather(one.reconcile(older), two.reconcile(newer))
    await one.reconcile(older)
    assert await names(place) == ["e", "f"]
    assert (await stored(place, "e")).spec.payload == '{"new":1}'
    await three.stop()


async def test_an_apply_makes_a_deleted_schedule_anew(place: Place, two: KubernetesSchedulerProvider) -> None:
    """It counts as new: due from now on, and an expression that is refused is refused."""
    await two.apply(rule())
    await two.delete("d")
    tombstone = await stored(place)
    await two.apply(rule(enabled=False, payload={}))
    assert not is_deleted(await stored(place))
    await two.delete("d")
    await two.apply(rule())
    found = await stored(place)
    assert found.spec.enabled
    assert found.spec.earlier_rules is None
    assert found.metadata.labels.keys() < tombstone.metadata.labels.keys()
    assert found.spec.active_since is not None
    assert tombstone.spec.active_since is not None
    assert found.spec.active_since > tombstone.spec.active_since
    assert await place.api.schedules.version("d") is not None


async def test_a_delete_that_astrabox_took_back_is_mended_by_a_newer_process(place: Place) -> None:
    """The process that deleted is gone and could not put the old state back; the next one's list is newer."""
    await place.provider(CAREFUL).delete("d")
    after = place.provider(CAREFUL)
    await after.reconcile([rule()])
    assert await names(place) == ["d"]
    await after.stop()


async def test_a_delete_that_differs_from_the_list_is_named_later(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    one, two = place.provider(replace(QUICK, recently=1.0)), place.provider()
    await two.apply(rule("d"))
    await two.delete("d")
    await two.delete("unlisted")
    await one.reconcile([rule("d")])
    second_look = one._engine()._second_look
    await until(lambda: true(second_look._task is None or second_look._task.done()))
    told = [each.getMessage() for each in caplog.records if "had listed it then" in each.getMessage()]
    assert [each.split("'")[1] for each in told] == ["d"]
    await one.reconcile([rule("d")])
    assert await names(place) == ["d"], "the next list is newer"
    await one.stop()


@pytest.mark.parametrize(("age", "stays"), [(timedelta(seconds=5), True), (DELETED_KEPT, False)])
async def test_a_reconcile_takes_what_is_left_of_deleted_ones_once_nobody_needs_it(
    place: Place, age: timedelta, stays: bool
) -> None:
    """Not before: another process may still write from an older list, though this one's is newer."""
    await place.api.schedules.create(deleted("d", None, place.clock.now() - age))
    await place.provider(CAREFUL).reconcile([])
    assert [each.metadata.name for each in (await place.api.schedules.list()).items] == ["d"] * stays


@pytest.mark.parametrize("change", ["delete", "edit"])
async def test_a_change_protects_however_long_a_reconcile_takes(place: Place, change: str) -> None:
    """The list was read before the call, and becomes older while it goes on."""
    await by_hand(place)
    one, two = place.provider(replace(QUICK, recently=0.2)), place.provider()

    async def change_and_wait() -> None:
        await CHANGES[change](two)
        await asyncio.sleep(0.6)

    before(one, "update", change_and_wait)
    await one.reconcile([rule(payload={"old": 1})])
    assert await _payload(place) == ("{}" if change == "delete" else '{"newer":1}')
    await one.stop()


async def test_a_list_that_is_too_old_is_written_from_no_more(place: Place) -> None:
    one = place.provider(replace(CAREFUL, reconcile=0.0))
    with pytest.raises(SchedulerUnavailable, match="d"):
        await one.reconcile([rule()])
    assert await names(place) == []
    await one.stop()


async def test_a_schedule_of_another_deployment_under_the_name_is_left(
    place: Place, two: KubernetesSchedulerProvider
) -> None:
    await by_hand(place, "d")
    spec = (await stored(place)).spec
    await place.api.schedules.delete("d")
    await place.api.schedules.create(
        (deleted("d", None, place.clock.now())).changed(spec=spec.changed(deployment_id="x"))
    )
    await two.delete("d")
    assert (await stored(place)).spec.enabled
