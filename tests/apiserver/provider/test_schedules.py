"""apply and delete on a real API server: what is stored, and what is refused."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import pytest

from astrabox.seams.scheduler import InvalidSchedule, ScheduleCapacityExceeded
from astrabox_scheduler_crds.labels import APPLIED_AT_ANNOTATION, DEPLOYMENT_LABEL
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec
from tests.apiserver.provider.handlers import rule
from tests.apiserver.provider.scenery import Place
from tests.apiserver.provider.stored import by_hand, names, stored


async def test_active_since_follows_the_time_rule_only(place: Place) -> None:
    """Set on create, enable, disable, change of cron or zone; a payload edit and the same again leave it."""
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
    assert sorted({each for each in seen if each}) == [seen[0], seen[3], *seen[5:]]
    assert (await stored(place)).spec.cron == "*/2 * * * *"
    assert (await stored(place)).metadata.labels[DEPLOYMENT_LABEL] == "d"


async def by_another(place: Place, **marks: dict[str, str]) -> None:
    """Somebody else labels or annotates the schedule."""
    path = f"/apis/scheduler.astrabox.io/v1/namespaces/{place.namespace}/deploymentschedules/d"
    patch, kind = json.dumps({"metadata": marks}).encode(), "application/merge-patch+json"
    await place.api.transport.request("PATCH", path, body=patch, content_type=kind)


async def test_every_apply_is_marked_and_keeps_marks_of_others(place: Place) -> None:
    provider = place.provider()
    await provider.apply(rule())
    await by_another(place, labels={"team": "a"}, annotations={"note": "n"})
    first = (await stored(place)).metadata
    await provider.apply(rule())
    second = (await stored(place)).metadata
    assert second.annotations[APPLIED_AT_ANNOTATION] > first.annotations[APPLIED_AT_ANNOTATION]
    assert second.generation == first.generation, "the same apply has changed the spec"
    assert second.labels["team"] == "a"
    assert second.annotations["note"] == "n"


async def test_what_others_own_survives_an_apply(place: Place) -> None:
    """Finalizers, owners, and so every field that this version does not know: an apply merges."""
    provider = place.provider()
    await provider.apply(rule())
    owner = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "name": "o",
        "uid": "11111111-2222-3333-4444-555555555555",
    }
    patch: dict[str, Any] = {
        "metadata": {"finalizers": ["backup.example.org/keep"], "ownerReferences": [owner]}
    }
    resource = place.api.schedules._resource
    await resource.patch("d", patch)
    await provider.apply(rule(payload={"new": 1}))
    await provider.reconcile([rule(payload={"newer": 1})])
    raw = json.loads(await place.api.transport.request("GET", f"{resource.path}/d"))
    assert raw["spec"]["payload"] == '{"new":1}'
    assert raw["metadata"]["finalizers"] == ["backup.example.org/keep"]
    assert raw["metadata"]["ownerReferences"] == [owner]
    await resource.patch("d", {"metadata": {"finalizers": None}})
    await provider.stop()


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
    with pytest.raises(ScheduleCapacityExceeded, match="once its"):
        await provider.enqueue("d", {"prompt": "<" * 240_000}, trigger="manual")
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
    with pytest.raises(ScheduleCapacityExceeded, match=r"full.* makes room 15 minutes after it was deleted"):
        await provider.apply(rule())
    with pytest.raises(ScheduleCapacityExceeded, match="full"):
        await provider.enqueue("d", {}, trigger="manual")
    await provider.delete("d")  # to make room; it was not there, and that cannot be noted


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
            await by_another(place, labels={"n": str(n)})

    await asyncio.gather(edit(), *(provider.apply(rule(payload={"n": n})) for n in range(10)))
    found = await stored(place)
    assert found.metadata.labels["n"] == "19"


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
