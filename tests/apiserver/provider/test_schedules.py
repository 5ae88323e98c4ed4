"""apply, delete and reconcile on a real API server, and what holds after they fail."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from astrabox.seams.scheduler import InvalidSchedule, ScheduleCapacityExceeded, SchedulerUnavailable
from astrabox_scheduler_client.errors import NotFound, Unreachable
from astrabox_scheduler_crds.labels import APPLIED_AT_ANNOTATION, DEPLOYMENT_LABEL
from astrabox_scheduler_crds.metadata import ObjectMeta, utc_text
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from tests.apiserver.provider.scenery import QUICK, Place, rule, true, until


async def stored(place: Place, name: str = "d") -> DeploymentSchedule:
    return await place.api.schedules.get(name)


async def names(place: Place) -> list[str]:
    return sorted(each.metadata.name for each in (await place.api.schedules.list()).items)


async def by_hand(place: Place, deployment_id: str = "d", **fields: Any) -> None:
    spec = ScheduleSpec(
        deployment_id=deployment_id,
        cron=fields.get("cron", "* * * * *"),
        time_zone=fields.get("zone", "UTC"),
        enabled=fields.get("enabled", True),
        payload="{}",
    )
    marks = {APPLIED_AT_ANNOTATION: fields["applied"]} if "applied" in fields else {}
    await place.api.schedules.create(
        DeploymentSchedule(
            metadata=ObjectMeta(name=deployment_key(deployment_id), annotations=marks), spec=spec
        )
    )


async def test_active_since_follows_the_time_rule_only(place: Place) -> None:
    """Set on create, enable, change of cron or zone; a payload edit and the same again leave it."""
    provider = place.provider()
    seen: list[datetime | None] = []
    for schedule in (
        rule(),
        rule(payload={"new": 1}),
        rule(),
        rule(cron="*/2 * * * *"),
        rule(cron=" */2  *\t* * * "),
        rule(cron="*/2 * * * *", timezone="Europe/Berlin"),
        rule(cron="*/2 * * * *", timezone="Europe/Berlin", enabled=False),
        rule(cron="*/2 * * * *", timezone="Europe/Berlin"),
    ):
        await provider.apply(schedule)
        seen.append((await stored(place)).spec.active_since)
    assert seen[0] == seen[1] == seen[2]
    assert seen[3] == seen[4]
    assert seen[5] == seen[6]
    assert sorted({each for each in seen if each}) == [seen[0], seen[3], seen[5], seen[7]]
    assert (await stored(place)).spec.cron == "*/2 * * * *"
    assert (await stored(place)).metadata.labels[DEPLOYMENT_LABEL] == "d"


async def test_every_apply_is_marked_and_keeps_marks_of_others(place: Place) -> None:
    provider = place.provider()
    await provider.apply(rule())
    await place.api.schedules.patch_metadata("d", labels={"team": "a"}, annotations={"note": "n"})
    first = (await stored(place)).metadata
    await provider.apply(rule())
    second = (await stored(place)).metadata
    assert second.annotations[APPLIED_AT_ANNOTATION] > first.annotations[APPLIED_AT_ANNOTATION]
    assert second.generation == first.generation, "the same apply has changed the spec"
    assert second.labels["team"] == "a"
    assert second.annotations["note"] == "n"


async def test_zone_that_left_the_database_can_be_disabled_edited_and_deleted(place: Place) -> None:
    """TZ-09: a zone is judged when it is new; not when other things change."""
    provider = place.provider()
    await by_hand(place, zone="Mars/Olympus")
    for schedule in (
        rule(timezone="Mars/Olympus", payload={"new": 1}),
        rule(timezone="Mars/Olympus", enabled=False),
        rule(timezone="UTC"),
    ):
        await provider.apply(schedule)
    with pytest.raises(InvalidSchedule, match="zone"):
        await provider.apply(rule(timezone="Mars/Olympus"))
    with pytest.raises(InvalidSchedule, match="zone"):
        await provider.apply(rule(timezone="europe/berlin"))
    assert (await stored(place)).spec.time_zone == "UTC"
    await provider.delete("d")
    assert await names(place) == []


@pytest.mark.parametrize("cron", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *"])
async def test_dates_that_never_come_are_refused(place: Place, cron: str) -> None:
    """CC-09: refused at apply, naming the field; nothing is stored."""
    provider = place.provider()
    with pytest.raises(InvalidSchedule, match="day of month"):
        await provider.apply(rule(cron=cron))
    assert await names(place) == []
    await provider.apply(rule(cron="0 0 29 2 *"))


async def test_what_is_too_large_is_refused_in_plain_words(place: Place) -> None:
    """A megabyte in bytes, not in characters; an id of more than 1024."""
    provider = place.provider()
    for call in (
        provider.apply(rule(payload={"prompt": "ż" * 600_000})),
        provider.enqueue("d", {"prompt": "ż" * 600_000}, trigger="manual"),
        provider.apply(rule("x" * 1025)),
    ):
        with pytest.raises(ScheduleCapacityExceeded):
            await call
    await provider.apply(rule(payload={"prompt": "x" * 900_000}))
    with pytest.raises(InvalidSchedule):
        await provider.apply(rule("\ud800"))
    await provider.delete("\ud800")
    assert await provider.list_runs("\ud800") == []


async def test_used_up_quota_is_a_capacity(place: Place) -> None:
    """AL-05, apply side: a ResourceQuota of zero refuses what is new."""
    provider = place.provider()
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none"},
        "spec": {
            "hard": {
                "count/deploymentschedules.scheduler.astrabox.io": "0",
                "count/runinvocations.scheduler.astrabox.io": "0",
            }
        },
    }
    await _send(place, "POST", "", quota)
    hard = quota["spec"]["hard"]  # type: ignore[index]
    counted = {**quota, "status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
    await _send(place, "PUT", "/none/status", counted)  # as a controller would
    with pytest.raises(ScheduleCapacityExceeded, match="full"):
        await provider.apply(rule())
    with pytest.raises(ScheduleCapacityExceeded, match="full"):
        await provider.enqueue("d", {}, trigger="manual")


async def _send(place: Place, method: str, below: str, body: dict[str, Any]) -> None:
    path = f"/api/v1/namespaces/{place.namespace}/resourcequotas{below}"
    await place.api.transport.request(method, path, body=json.dumps(body).encode())


async def test_two_replicas_apply_and_delete_at_once(place: Place) -> None:
    one, two = place.provider(), place.provider()
    await asyncio.gather(*(each.apply(rule(payload={"n": n})) for n in range(5) for each in (one, two)))
    await asyncio.gather(one.delete("d"), two.delete("d"))
    assert await names(place) == []


async def test_labels_edited_meanwhile_hold_up_no_apply(place: Place) -> None:
    """AL-10: conflicts are read again and written again; both writers get through."""
    provider = place.provider()
    await provider.apply(rule())

    async def edit() -> None:
        for n in range(20):
            await place.api.schedules.patch_metadata("d", labels={"n": str(n)})

    await asyncio.gather(edit(), *(provider.apply(rule(payload={"n": n})) for n in range(10)))
    found = await stored(place)
    assert found.metadata.labels["n"] == "19"


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
    lossy(provider, "replace", carried_out, times=1)
    lossy(provider, "delete", carried_out, times=1)
    await provider.apply(rule())
    await provider.apply(rule(payload={"new": 1}))
    assert (await stored(place)).spec.payload == '{"new":1}'
    await provider.delete("d")
    assert await names(place) == []


async def test_old_state_is_put_back_when_the_fate_of_an_apply_is_unknown(place: Place) -> None:
    """Carried out, the answer lost, and the store gone: AstraBox rolls back, and so do we."""
    provider = place.provider(replace(QUICK, settle=0.3))
    await provider.apply(rule(payload={"old": 1}))
    old = await stored(place)
    _lose_all_after_write(provider, place, "replace")
    with pytest.raises(SchedulerUnavailable):
        await provider.apply(rule(payload={"new": 1}, enabled=False))
    assert (await stored(place)).spec.enabled is False, "the test needs the write to be carried out"
    place.door.open()
    await until(lambda: _is(place, old.spec))
    await until(lambda: true(not len(provider._engine()._schedules._restorer)))
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
    _lose_all_after_write(provider, place, "delete")
    with pytest.raises(SchedulerUnavailable):
        await provider.delete("d")
    assert await names(place) == []
    place.door.open()
    await until(lambda: _is(place, old.spec))
    await until(lambda: true(not len(provider._engine()._schedules._restorer)))
    await provider.stop()


async def test_later_apply_replaces_what_was_to_be_put_back(place: Place) -> None:
    provider = place.provider(replace(QUICK, settle=0.3, first_pause=0.5, longest_pause=0.5))
    await provider.apply(rule(payload={"old": 1}))
    _lose_all_after_write(provider, place, "replace")
    with pytest.raises(SchedulerUnavailable):
        await provider.apply(rule(payload={"lost": 1}))
    place.door.open()
    await provider.apply(rule(payload={"later": 1}))
    await asyncio.sleep(1.2)
    assert (await stored(place)).spec.payload == '{"later":1}'
    assert not len(provider._engine()._schedules._restorer)
    await provider.stop()


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
        return (await stored(place)).spec == spec
    except NotFound:
        return False


async def _none(place: Place) -> bool:
    return await names(place) == []


async def test_reconcile_writes_only_what_differs(place: Place) -> None:
    provider = place.provider()
    rules = [rule(f"d{n}") for n in range(20)]
    await provider.reconcile(rules)
    before = {each.metadata.name: each.metadata for each in (await place.api.schedules.list()).items}
    await provider.reconcile([*rules[:-1], rule("d19", payload={"new": 1})])
    after = {each.metadata.name: each.metadata for each in (await place.api.schedules.list()).items}
    changed = [name for name in before if before[name] != after[name]]
    assert changed == ["d19"]


async def test_reconcile_spares_what_another_replica_applied_a_moment_ago(place: Place) -> None:
    """Its snapshot may be older: it neither overwrites nor removes; afterwards it does both."""
    one, two = place.provider(replace(QUICK, recently=60.0)), place.provider(replace(QUICK, recently=0.0))
    await two.apply(rule("new"))
    await two.apply(rule("edited", payload={"new": 1}))
    await one.reconcile([rule("edited", payload={"old": 1}), rule("other")])
    assert await names(place) == ["edited", "new", "other"]
    assert (await stored(place, "edited")).spec.payload == '{"new":1}'
    await two.reconcile([rule("edited", payload={"old": 1})])
    assert await names(place) == ["edited"]
    assert (await stored(place, "edited")).spec.payload == '{"old":1}'


async def test_mark_from_the_far_future_does_not_protect_for_ever(place: Place) -> None:
    provider = place.provider()
    await by_hand(place, applied=utc_text(place.clock.now() + timedelta(days=400)))
    await by_hand(place, "other", applied="not a time")
    await provider.reconcile([])
    assert await names(place) == []


async def test_reconcile_deals_with_all_before_it_complains(place: Place) -> None:
    """Schedules that are refused hold up no other, and keep what is stored of them."""
    provider = place.provider()
    await by_hand(place, "kept", cron="0 0 * * *")
    with pytest.raises(InvalidSchedule) as caught:
        await provider.reconcile(
            [
                rule("bad", cron="never"),
                rule("kept", payload={"p": (1,)}),
                rule("good"),
                rule("bad2", timezone="No"),
            ]
        )
    assert await names(place) == ["good", "kept"]
    for each in ("bad", "bad2", "kept"):
        assert each in str(caught.value)
    assert "good" not in str(caught.value)


async def test_reconcile_keeps_the_limit(place: Place) -> None:
    """Those that are enabled already have precedence; disabled ones do not count."""
    provider = place.provider(MAX_ACTIVE_SCHEDULES="2")
    await provider.reconcile([rule("a"), rule("off", enabled=False)])
    with pytest.raises(ScheduleCapacityExceeded, match="c"):
        await provider.reconcile([rule("c0"), rule("c1"), rule("a"), rule("off", enabled=False)])
    assert await names(place) == ["a", "c0", "off"]


async def test_schedule_under_a_name_that_is_ours_gives_way(place: Place) -> None:
    """Made by hand for another Deployment: ours takes its place, by apply and by reconcile."""
    provider = place.provider()
    acts: list[Callable[[], Awaitable[None]]] = [
        lambda: provider.apply(rule()),
        lambda: provider.reconcile([rule()]),
    ]
    for act in acts:
        other = ScheduleSpec(deployment_id="x", cron="* * * * *", time_zone="UTC", payload="{}")
        await place.api.schedules.create(DeploymentSchedule(metadata=ObjectMeta(name="d"), spec=other))
        await act()
        assert (await stored(place)).spec.deployment_id == "d"
        await place.api.schedules.delete("d")


async def test_replay_takes_its_source_from_the_history(place: Place) -> None:
    provider = place.provider()
    first = await provider.enqueue("d", {"n": 1.0}, trigger="manual")
    again = await provider.enqueue("d", {}, trigger="replay", replayed_from_run_id=first.run_id)
    assert repr(again.payload) == "{'n': 1.0}"
    for source, deployment in (("unknown", "d"), (first.run_id, "another"), ("", "d"), ("..", "d")):
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
