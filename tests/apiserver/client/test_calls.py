"""Typed calls against a real API server: what the scripted server only claims."""

import asyncio
import json
from collections.abc import Callable
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from astrabox_scheduler_client import resource
from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.confirm import ScheduleConfirm
from astrabox_scheduler_client.errors import (
    AlreadyExists,
    Conflict,
    Gone,
    Invalid,
    NotFound,
    QuotaExceeded,
    TooLarge,
    Unreachable,
)
from astrabox_scheduler_client.runs import assigned_to
from astrabox_scheduler_crds.deletion import alive, deleted, is_deleted
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL, DEPLOYMENT_LABEL, RUN_PLURAL
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import RunInvocation, RunSpec
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec
from tools.controlplane import Cluster


def schedule(name: str = "d", *, enabled: bool = True, payload: str = "{}") -> DeploymentSchedule:
    spec = ScheduleSpec(
        deployment_id=name, cron="0 6 * * *", time_zone="Europe/Berlin", enabled=enabled, payload=payload
    )
    return DeploymentSchedule(metadata=ObjectMeta(name=name), spec=spec)


def run(name: str, payload: str = "{}", assignee: str | None = None) -> RunInvocation:
    labels = {DEPLOYMENT_LABEL: "d"} | ({ASSIGNEE_LABEL: assignee} if assignee else {})
    # The model would refuse a payload that is too large, and here the API server shall.
    spec = RunSpec(deployment_id="d", payload="{}").changed(payload=payload)
    return RunInvocation(metadata=ObjectMeta(name=name, labels=labels), spec=spec)


def open_sockets() -> int:
    descriptors = Path("/proc/self/fd").iterdir()
    return sum(each.is_symlink() and str(each.readlink()).startswith("socket:") for each in descriptors)


async def test_a_schedule_from_create_to_delete(api: SchedulerApi) -> None:
    created = await api.schedules.create(schedule(payload='{"a": 1.0}'))
    read = await api.schedules.get("d")
    assert (read.spec.payload, read.metadata.uid, read.metadata.generation) == ('{"a": 1.0}', created.uid, 1)
    replaced = await api.schedules.update(read.changed(spec=read.spec.changed(enabled=False)))
    assert replaced.generation == 2
    with pytest.raises(Conflict):
        await api.schedules.update(read)
    marked = (await api.schedules.get("d")).metadata.changed(labels={"a": "b"}, annotations={"c": "d"})
    await api.schedules.update(read.changed(metadata=marked, spec=read.spec.changed(enabled=False)))
    status = await api.schedules.patch_status("d", {"observedGeneration": 2})
    read = await api.schedules.get("d")
    assert (dict(read.metadata.labels), dict(read.metadata.annotations)) == ({"a": "b"}, {"c": "d"})
    assert (read.metadata.generation, read.status.observed_generation) == (2, 2)
    assert read.metadata.resource_version == status.resource_version
    with pytest.raises(Conflict):
        await api.schedules.delete("d", uid="00000000-0000-0000-0000-000000000000")
    await api.schedules.delete("d", uid=created.uid)
    with pytest.raises(NotFound) as caught:
        await api.schedules.get("d")
    assert caught.value.reason == "NotFound"


async def test_what_is_left_of_deleted_schedules_is_found_and_made_anew(api: SchedulerApi) -> None:
    await api.schedules.create(schedule("d"))
    await api.schedules.create(schedule("other"))
    now = datetime.now(UTC)
    await api.schedules.update(deleted("d", await api.schedules.get("d"), now))
    await api.schedules.create(deleted("absent", None, now))
    await api.schedules.create(deleted("again", None, now).changed(spec=schedule("again").spec))
    found = {each.metadata.name: each for each in await api.schedules.list_deleted()}
    assert found.keys() == {"d", "absent"}
    assert all(is_deleted(each) for each in found.values())
    assert await api.schedules.version("d") is None
    first = found["d"].metadata
    again = first.changed(labels=alive(first.labels))
    await api.schedules.update(schedule("d").changed(metadata=again))
    assert [each.metadata.name for each in await api.schedules.list_deleted()] == ["absent"]
    with pytest.raises(Conflict):
        await api.schedules.delete("d", first.uid, first.resource_version)
    assert await api.schedules.version("d") is not None


async def test_a_name_is_given_once(api: SchedulerApi) -> None:
    await api.runs.create(run("r"))
    with pytest.raises(AlreadyExists):
        await api.runs.create(run("r"))


async def test_versions_are_of_enabled_schedules_only(api: SchedulerApi) -> None:
    on = await api.schedules.create(schedule("on"))
    await api.schedules.create(schedule("off", enabled=False))
    assert await api.schedules.enabled_versions() == {"on": (on.uid, 1)}
    assert [await api.schedules.version(name) for name in ("on", "off", "none")] == [(on.uid, 1), None, None]
    for batch in (0, 20):
        confirmed = await ScheduleConfirm(api.schedules, api.clock, batch=batch).versions(
            ["on", "off", "none"]
        )
        assert dict(confirmed.versions) == {"on": (on.uid, 1)}
        assert abs(confirmed.at - datetime.now(UTC)) < timedelta(seconds=30)


async def test_a_status_write_from_an_old_state_is_a_conflict_and_changes_nothing(api: SchedulerApi) -> None:
    first = await api.runs.create(run("r"))
    second = await api.runs.patch_status("r", {"phase": "Running", "attempts": 1}, first.resource_version)
    with pytest.raises(Conflict):
        await api.runs.patch_status("r", {"phase": "Failed"}, first.resource_version)
    read = await api.runs.get("r")
    assert (read.status.phase, read.metadata.resource_version) == ("Running", second.resource_version)
    with pytest.raises(Conflict):
        await api.runs.patch_labels("r", {"a": "b"}, resource_version=first.resource_version)
    with pytest.raises(Conflict):
        await api.runs.delete("r", resource_version=first.resource_version)
    await api.runs.delete("r", second.uid, second.resource_version)


async def test_runs_are_found_by_what_they_are(api: SchedulerApi) -> None:
    for name in ("queued", "done", "running"):
        await api.runs.create(run(name, assignee="p-1"))
    await api.runs.create(run("other", assignee="p-2"))
    await api.runs.patch_status("running", {"phase": "Running"}, None)
    await api.runs.patch_status("done", {"phase": "Cancelled"}, None)
    assert {each.metadata.name for each in await api.runs.list_for_deployment("d")} == {
        "queued", "done", "running", "other",
    }  # fmt: skip
    assert await api.runs.list_for_deployment("nobody") == []
    unfinished = {each.name for each in await api.runs.list_unfinished_metadata()}
    assert unfinished == {"queued", "running", "other"}
    assert [each.name for each in await api.runs.list_finished_refs()] == ["done"]
    assigned = await api.runs.list_assigned("p-1")
    assert {each.metadata.name for each in assigned.items} == {"queued", "running"}
    assert len((await api.runs.list_assigned("p-1", unfinished=False)).items) == 3


async def test_pages_make_one_list(api: SchedulerApi, monkeypatch: pytest.MonkeyPatch) -> None:
    await asyncio.gather(*(api.schedules.create(schedule(f"d-{n}")) for n in range(25)))
    calls = []
    real = api.transport.request

    async def request(*arguments: object, **options: object) -> bytes:
        calls.append(options)
        return await real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(api.transport, "request", request)
    listing = await api.schedules._resource.list_all(limit=10)
    assert {each.metadata.name for each in listing.items} == {f"d-{n}" for n in range(25)}
    assert len(calls) == 3
    assert resource.PAGE_LIMIT == 500


async def test_a_watch_goes_on_where_the_list_ended(api: SchedulerApi) -> None:
    await api.runs.create(run("before", assignee="p"))
    listing = await api.runs.list_assigned("p")
    await api.runs.create(run("after", assignee="p"))
    await api.runs.create(run("foreign", assignee="q"))
    await api.runs.patch_labels("before", {ASSIGNEE_LABEL: None})
    async with aclosing(api.runs.watch(assigned_to("p"), listing.resource_version)) as events:
        seen = [await anext(events), await anext(events)]
    assert [(each.type, each.name) for each in seen] == [("ADDED", "after"), ("DELETED", "before")]


async def test_a_watch_ends_when_it_was_told_to_and_a_silent_one_is_unreachable(api: SchedulerApi) -> None:
    version = (await api.runs.list_assigned("p")).resource_version
    events = [each async for each in api.runs.watch(assigned_to("p"), version, timeout_seconds=1)]
    assert {each.type for each in events} <= {"BOOKMARK"}
    with pytest.raises(Unreachable):
        async for _ in api.runs.watch(assigned_to("p"), version, idle_timeout=0.3):
            pass


async def test_a_watch_that_ends_waits_for_no_goodbye_of_its_peer(api: SchedulerApi) -> None:
    version = (await api.runs.list_assigned("p")).resource_version
    await api.runs.create(run("seen", assignee="p"))
    async with aclosing(api.runs.watch(assigned_to("p"), version)) as events:
        await anext(events)
        during = open_sockets()
    # Two turns of the loop are less than any answer takes.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert open_sockets() == during - 1


async def test_a_watch_from_a_forgotten_version_is_gone(api: SchedulerApi) -> None:
    with pytest.raises(Gone):
        await anext(api.runs.watch(assigned_to("p"), "1"))


async def test_a_line_of_a_watch_may_be_as_large_as_an_object(api: SchedulerApi) -> None:
    version = (await api.runs.list_assigned("p")).resource_version
    # A control character takes six bytes in JSON text: the largest line that an object can make.
    payload = "\x01" * 200_000
    await api.runs.create(run("big", payload, assignee="p"))
    async with aclosing(api.runs.watch(assigned_to("p"), version)) as events:
        event = await anext(events)
    assert event.run is not None
    assert event.run.spec.payload == payload


@pytest.mark.parametrize("size", [1_100_000, 1_600_000, 2_500_000, 3_500_000])
async def test_what_is_too_large_is_told_as_that(api: SchedulerApi, size: int) -> None:
    with pytest.raises(TooLarge) as caught:
        await api.runs.create(run("big", "x" * size))
    assert not caught.value.ambiguous
    assert "xxx" not in repr(caught.value)


async def test_the_store_s_own_limits_are_told_as_that(api: SchedulerApi) -> None:
    # A field without a limit of its own: what the models cut off by their schema goes to etcd.
    path = f"/api/v1/namespaces/{api.namespace}/podtemplates"
    for size in (1_600_000, 2_500_000):
        container = {"name": "c", "image": "i", "args": ["x" * size]}
        template = {"metadata": {"name": "big"}, "template": {"spec": {"containers": [container]}}}
        with pytest.raises(TooLarge) as caught:
            await api.transport.request("POST", path, body=json.dumps(template).encode())
        assert (caught.value.status, caught.value.ambiguous) == (500, False)


async def test_a_refused_value_is_told_by_its_field_and_not_quoted(api: SchedulerApi) -> None:
    await api.runs.create(run("r"))
    with pytest.raises(Invalid) as caught:
        await api.runs.patch_status("r", {"attempts": "the prompt"}, None)
    assert caught.value.fields == ("status.attempts",)
    assert "the prompt" not in repr(caught.value)


async def test_a_used_up_quota_is_told_as_that(api: SchedulerApi, control_plane: Cluster) -> None:
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "runs", "namespace": api.namespace},
        "spec": {"hard": {f"count/{RUN_PLURAL}.scheduler.astrabox.io": "0"}},
    }
    control_plane.kubectl("create", "-f", "-", input=json.dumps(quota))
    # Nobody counts in a control plane without a controller manager: write down what it would.
    status = {"status": {"hard": quota["spec"]["hard"], "used": quota["spec"]["hard"]}}  # type: ignore[index]
    control_plane.kubectl(
        "patch", "resourcequota", "runs", "-n", api.namespace, "--subresource=status", "--type=merge",
        "-p", json.dumps(status),
    )  # fmt: skip
    with pytest.raises(QuotaExceeded) as caught:
        await _until_refused(api)
    assert "exceeded quota: runs" in str(caught.value)


async def _until_refused(api: SchedulerApi) -> None:
    """The admission plug-in reads quotas through a watch; a create before it saw ours succeeds."""
    for number in range(1000):
        await api.runs.create(run(f"r-{number}"))


async def test_1000_calls_open_no_more_files(api: SchedulerApi, open_files: Callable[[], int]) -> None:
    await api.schedules.create(schedule())
    await asyncio.gather(*(api.schedules.get("d") for _ in range(20)))
    before = open_files()
    for _ in range(50):
        await asyncio.gather(*(api.schedules.get("d") for _ in range(20)))
    assert open_files() <= before


@pytest.fixture
def open_files() -> Callable[[], int]:
    return lambda: len(list(Path("/proc/self/fd").iterdir()))


async def test_an_event_is_readable(api: SchedulerApi, control_plane: Cluster) -> None:
    created = await api.schedules.create(schedule())
    await api.events.create("DeploymentSchedule", created, "Skipped", "n" * 5000, type="Warning")
    text = control_plane.kubectl("get", "events.events.k8s.io", "-n", api.namespace, "-o", "json")
    (event,) = json.loads(text)["items"]
    assert (event["reason"], event["type"], event["regarding"]["uid"]) == ("Skipped", "Warning", created.uid)
    assert len(event["note"]) == 1000


async def test_an_event_that_two_processes_say_is_there_once(
    api: SchedulerApi, control_plane: Cluster
) -> None:
    """OB-05: two operators that start together both find what was missed."""
    first = await api.schedules.create(schedule("d"))
    second = await api.schedules.create(schedule("e"))
    for about, once in [(first, "12:01"), (first, "12:01"), (first, "12:02"), (second, "12:01")]:
        await api.events.create("DeploymentSchedule", about, "Skipped", "n", once=once)
    text = control_plane.kubectl("get", "events.events.k8s.io", "-n", api.namespace, "-o", "json")
    told = sorted(event["regarding"]["name"] for event in json.loads(text)["items"])
    assert told == ["d", "d", "e"]


async def test_the_schema_is_published(api: SchedulerApi) -> None:
    document = await api.discovery.published_schema()
    assert document is not None
    assert any(RUN_PLURAL in path for path in document["paths"])
