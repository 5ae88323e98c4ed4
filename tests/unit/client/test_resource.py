import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.errors import ApiError, Gone, MalformedAnswer, NotFound, NotServed
from astrabox_scheduler_client.resource import segment
from astrabox_scheduler_crds.labels import DEPLOYMENT_LABEL
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec
from tests.unit.client.scripted import ScriptedServer, Step, answer, status_object, transport_to

GONE = answer(410, status_object(410, "Expired"))


@asynccontextmanager
async def api_on(*script: Step) -> AsyncIterator[tuple[SchedulerApi, ScriptedServer]]:
    async with ScriptedServer(list(script)).running() as server, transport_to(server.port) as (transport, _):
        yield SchedulerApi(transport, "ns"), server


def schedule(name: str, **spec: Any) -> dict[str, Any]:
    rule = {"deploymentId": name, "cron": "* * * * *", "timeZone": "UTC", "payload": "{}"} | spec
    return {"metadata": {"name": name, "uid": f"uid-{name}", "generation": 3}, "spec": rule}


def page(*items: Any, version: str = "5", more: str = "") -> Step:
    return answer(body={"metadata": {"resourceVersion": version, "continue": more}, "items": list(items)})


async def test_a_list_reads_all_pages_of_one_state() -> None:
    async with api_on(page(schedule("a"), more="t/1="), page(schedule("b"))) as (api, server):
        listing = await api.schedules.list()
    assert [each.metadata.name for each in listing.items] == ["a", "b"]
    assert (listing.resource_version, listing.unreadable) == ("5", ())
    base = "/apis/scheduler.astrabox.io/v1/namespaces/ns/deploymentschedules?limit=500"
    assert [each.target for each in server.requests] == [base, f"{base}&continue=t%2F1%3D"]


async def test_a_list_that_expires_between_pages_begins_again() -> None:
    script = [page(schedule("old"), more="t"), GONE, page(schedule("a"), more="u"), page(schedule("b"))]
    async with api_on(*script) as (api, _):
        assert [each.metadata.name for each in (await api.schedules.list()).items] == ["a", "b"]


async def test_a_list_that_always_expires_ends_as_gone() -> None:
    async with api_on(*[page(more="t"), GONE] * 3) as (api, server):
        with pytest.raises(Gone):
            await api.schedules.list()
    assert len(server.requests) == 6


async def test_an_object_of_a_wrong_shape_is_told_and_spoils_no_other() -> None:
    bad = schedule("bad", enabled="secret")
    async with api_on(page(schedule("a"), bad, {"metadata": {"name": "none"}})) as (api, _):
        listing = await api.schedules.list()
    assert [each.metadata.name for each in listing.items] == ["a"]
    assert [(each.name, each.uid, each.fields) for each in listing.unreadable] == [
        ("bad", "uid-bad", ("spec.enabled",)),
        ("none", None, ("spec",)),
    ]


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items": []}', b'{"metadata": {}, "items": [1]}'])
async def test_a_list_that_is_none_is_malformed(body: bytes) -> None:
    async with api_on(answer(body=body)) as (api, _):
        with pytest.raises(MalformedAnswer):
            await api.schedules.list()


@pytest.mark.parametrize("body", [b"", b"secret", b"[]", b'{"metadata": "secret"}'])
async def test_an_answer_to_a_write_that_cannot_be_read_is_ambiguous_and_not_quoted(body: bytes) -> None:
    async with api_on(answer(201, body)) as (api, _):
        spec = ScheduleSpec(deployment_id="d", cron="* * * * *", time_zone="UTC", payload="{}")
        with pytest.raises(MalformedAnswer) as caught:
            await api.schedules.create(DeploymentSchedule(metadata=ObjectMeta(name="d"), spec=spec))
    assert caught.value.ambiguous
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


async def test_a_status_patch_carries_the_lock_and_asks_for_metadata_only() -> None:
    async with api_on(answer(body={"metadata": {"name": "r", "resourceVersion": "8"}})) as (api, server):
        metadata = await api.runs.patch_status("r", {"phase": "Running", "lastError": None}, "7")
    assert metadata.resource_version == "8"
    request = server.requests[0]
    assert request.target == "/apis/scheduler.astrabox.io/v1/namespaces/ns/runinvocations/r/status"
    assert json.loads(request.body) == {
        "status": {"phase": "Running", "lastError": None},
        "metadata": {"resourceVersion": "7"},
    }
    assert request.headers["content-type"] == "application/merge-patch+json"
    assert "as=PartialObjectMetadata;" in request.headers["accept"]


async def test_a_label_patch_without_a_lock_names_no_version() -> None:
    async with api_on(answer(body={"metadata": {"name": "r"}})) as (api, server):
        await api.runs.patch_labels("r", {"a": None})
    assert json.loads(server.requests[0].body) == {"metadata": {"labels": {"a": None}}}


async def test_a_delete_names_what_is_meant() -> None:
    async with api_on(answer(), answer()) as (api, server):
        await api.runs.delete("r", "u", "7")
        await api.runs.delete("r")
    assert [json.loads(each.body)["preconditions"] for each in server.requests] == [
        {"uid": "u", "resourceVersion": "7"},
        {},
    ]


@pytest.mark.parametrize("name", ["", ".", "..", "\ud800"])
async def test_a_name_that_would_be_another_path_is_not_found_and_not_sent(name: str) -> None:
    async with api_on() as (api, server):
        with pytest.raises(NotFound):
            await api.runs.get(name)
        with pytest.raises(NotFound):
            await api.runs.delete(name)
    assert server.requests == []


def test_a_name_is_one_segment_whatever_it_holds() -> None:
    assert segment("a/../b?x#y%2f ü") == "a%2F..%2Fb%3Fx%23y%252f%20%C3%BC"


@pytest.mark.parametrize(
    ("step", "version"),
    [(page({"metadata": {"name": "a", "uid": "uid-a", "generation": 3}}), ("uid-a", 3)), (page(), None)],
)
async def test_a_version_is_that_of_an_enabled_schedule(step: Step, version: tuple[str, int] | None) -> None:
    """The payload, which may be of a megabyte, does not come with it."""
    async with api_on(step) as (api, server):
        assert await api.schedules.version("a") == version
    request = server.requests[0]
    assert request.target.endswith("?fieldSelector=metadata.name%3Da%2Cspec.enabled%3Dtrue")
    assert "as=PartialObjectMetadataList;" in request.headers["accept"]


async def test_an_unserved_group_is_not_taken_for_a_disabled_schedule() -> None:
    async with api_on(*[answer(404, b"404 page not found")] * 2) as (api, _):
        with pytest.raises(NotServed):
            await api.schedules.version("a")
        with pytest.raises(NotServed):
            await api.schedules.stored_version("a")


async def test_enabled_versions_are_one_list_of_metadata() -> None:
    async with api_on(page({"metadata": {"name": "a", "uid": "u", "generation": 2}})) as (api, server):
        assert await api.schedules.enabled_versions() == {"a": ("u", 2)}
    request = server.requests[0]
    assert request.target.endswith("/deploymentschedules?fieldSelector=spec.enabled%3Dtrue")
    assert "as=PartialObjectMetadataList;" in request.headers["accept"]


def run_of(number: int) -> dict[str, Any]:
    """As the API server gives its metadata."""
    key, name = f"nightly-report-{number % 40}", f"nightly-report-{number % 40}-{number:08}t0600z"
    labels = {DEPLOYMENT_LABEL: key, "scheduler.astrabox.io/assignee": f"provider-astrabox-{number % 3}"}
    metadata = {
        "name": name,
        "namespace": "ns",
        "uid": f"{number:08}-7b1c-4b3e-9a51-0c3f5d1c2a7e",
        "resourceVersion": f"{number + 10**9}",
        "generation": 1,
        "creationTimestamp": f"2026-06-{number % 30 + 1:02}T06:00:01Z",
        "labels": labels,
    }
    return {"metadata": metadata}


async def test_of_very_many_runs_little_is_kept() -> None:
    """200 of each of 1,000 Deployments are kept as history; the whole metadata of so many is 400 MB."""
    pages = [[run_of(500 * number + each) for each in range(500)] for number in range(20)]
    script = [page(*items, more="" if items is pages[-1] else "t") for items in pages]
    async with api_on(*script) as (api, _):
        tracemalloc.start()
        try:
            runs = await api.runs.list_refs()
            kept, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (len(runs), len({run.deployment for run in runs})) == (10_000, 40)
    assert runs[7].created == datetime(2026, 6, 8, 6, 0, 1, tzinfo=UTC)
    assert kept / len(runs) < 500, "bytes"
    assert peak / len(runs) < 1000, "bytes; one page at a time is parsed"


async def test_few_among_many_are_asked_for_in_one_page() -> None:
    """An API server that pages by etcd reads all that is there to find a page of a few."""
    async with api_on(*[page()] * 3) as (api, server):
        await api.runs.list_refs("d")
        await api.runs.list_metadata_for_deployment("d")
        await api.runs.list_unfinished_metadata()
    assert not [each.target for each in server.requests if "limit" in each.target]


async def test_no_items_are_an_empty_list_or_null() -> None:
    empty = {"metadata": {"resourceVersion": "5"}, "items": None}
    async with api_on(answer(body=empty), answer(body=empty | {"items": []})) as (api, _):
        assert await api.schedules.enabled_versions() == {}
        assert await api.schedules.enabled_versions() == {}


@pytest.mark.parametrize("status", [400, 403, 500])
async def test_an_unreadable_version_is_an_error_and_not_a_disabled_schedule(status: int) -> None:
    async with api_on(answer(status)) as (api, _):
        with pytest.raises(ApiError):
            await api.schedules.version("a")


async def test_a_missing_schema_is_none_and_a_strange_one_is_malformed() -> None:
    async with api_on(answer(404), answer(body=b"[]"), answer(body={"openapi": "3.0.0"})) as (api, _):
        assert await api.discovery.published_schema() is None
        with pytest.raises(MalformedAnswer):
            await api.discovery.published_schema()
        assert await api.discovery.published_schema() == {"openapi": "3.0.0"}
