"""The operator's parts on a real API server, driven with an injected clock."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.firing import CATCH_UP_WINDOW
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.permissions import OPERATOR_PERMISSIONS
from astrabox_scheduler_crds.run import Phase, RunInvocation, RunSpec
from astrabox_scheduler_crds.transitions import Cancellation, status_patch, with_cancellation
from tests.apiserver.operator.scenery import (
    MARKER,
    bind_role,
    change,
    parts,
    put_provider,
    put_schedule,
    see,
    whole_minute,
)
from tools.controlplane import Cluster


async def test_two_loops_and_two_hundred_due_times_give_two_hundred_objects(
    api: SchedulerApi, admin_kubeconfig: Path, namespace: str
) -> None:
    """OO-01: both are convinced that every schedule is theirs, and fire at the same moment."""
    await put_provider(api)
    now = whole_minute(api.clock.now())
    for number in range(20):
        await put_schedule(api, f"s{number}", active_since=now - timedelta(minutes=9, seconds=30))
    async with parts(admin_kubeconfig, namespace) as first, parts(admin_kubeconfig, namespace) as second:
        for each in (first, second):
            alone = frozenset({each.attendance.identity})
            object.__setattr__(each.firing, "_attendance", _Alone(each.attendance, alone))
            await see(each)
        at = now + timedelta(seconds=1)
        results = await asyncio.gather(first.firing.drain(at), second.firing.drain(at))
    assert [each.fired for each in results] == [200, 200]
    assert len(await api.runs.list_unfinished_metadata()) == 200


class _Alone:
    """An attendance that sees no other operator."""

    def __init__(self, real: object, alone: frozenset[str]) -> None:
        self._real, self._alone = real, alone

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)

    def operators(self) -> frozenset[str]:
        return self._alone


async def test_a_change_that_no_watch_brought_is_seen_before_the_create(
    api: SchedulerApi, admin_kubeconfig: Path, namespace: str
) -> None:
    """PA-04, FI-04, WA-12: disabled, edited and deleted behind the operator's back; one GET each."""
    await put_provider(api)
    now = whole_minute(api.clock.now())
    names = ("disabled", "edited", "deleted", "same")
    for name in names:
        await put_schedule(api, name, active_since=now - timedelta(seconds=30))
    async with parts(admin_kubeconfig, namespace) as operator:
        await see(operator)
        await change(api, "disabled", enabled=False)
        await change(api, "edited", cron="0 0 1 1 *", active_since=now + timedelta(seconds=1))
        await api.schedules.delete("deleted")
        await operator.firing.drain(now + timedelta(seconds=2))
        runs = await api.runs.list_unfinished_metadata()
        assert [meta.labels[labels.DEPLOYMENT_LABEL] for meta in runs] == ["same"]
        assert operator.index.get("deleted") is None


async def test_the_same_behind_a_burst(api: SchedulerApi, admin_kubeconfig: Path, namespace: str) -> None:
    """PA-04: above 20 schedules the confirmation is one metadata list."""
    await put_provider(api)
    now = whole_minute(api.clock.now())
    for number in range(40):
        await put_schedule(api, f"s{number}", active_since=now - timedelta(seconds=30))
    async with parts(admin_kubeconfig, namespace) as operator:
        await see(operator)
        for number in range(10):
            await change(api, f"s{number}", enabled=False)
        result = await operator.firing.drain(now + timedelta(seconds=2))
    assert result.fired == 30
    assert len(await api.runs.list_unfinished_metadata()) == 30


async def test_a_quota_that_is_used_up(
    control_plane: Cluster, api: SchedulerApi, admin_kubeconfig: Path, namespace: str
) -> None:
    """AL-05: condition QuotaExceeded, few tries, others of another namespace unaffected, heals by itself."""
    resource = f"count/{labels.RUN_PLURAL}.{labels.GROUP}"
    control_plane.kubectl("create", "quota", "none", "-n", namespace, f"--hard={resource}=0")
    counted = json.dumps({"status": {"hard": {resource: "0"}, "used": {resource: "0"}}})
    control_plane.kubectl(
        "patch", "quota", "none", "-n", namespace, "--subresource=status", "--type=merge", "-p", counted
    )
    await put_provider(api)
    now = whole_minute(api.clock.now())
    await put_schedule(api, "a", active_since=now - timedelta(seconds=30))
    async with parts(admin_kubeconfig, namespace) as operator:
        await see(operator)
        for seconds in range(30):
            await operator.firing.drain(now + timedelta(seconds=seconds))
        await operator.status.flush(operator.index)
        status = (await api.schedules.get("a")).status
        assert [c.reason for c in status.conditions if c.type == "Ready"] == ["QuotaExceeded"]
        value = operator.metrics.registry.get_sample_value
        assert value("astrabox_scheduler_operator_create_errors_total", {"reason": "Forbidden"}) == 3
        control_plane.kubectl("delete", "quota", "none", "-n", namespace)

        async with asyncio.timeout(20):
            step = 60
            while not await api.runs.list_unfinished_metadata():
                step += 30
                await operator.firing.drain(now + timedelta(seconds=step))
                await asyncio.sleep(0.2)
        await operator.status.flush(operator.index)
        status = (await api.schedules.get("a")).status
        assert [c.status for c in status.conditions if c.type == "Ready"] == ["True"]


async def test_creates_that_are_forbidden(control_plane: Cluster, api: SchedulerApi, namespace: str) -> None:
    """OB-03: Ready=False with the API's answer; last due stays behind next due."""
    few = tuple(
        each for each in OPERATOR_PERMISSIONS if (each.resource, each.verb) != (labels.RUN_PLURAL, "create")
    )
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace, few)
    await put_provider(api)
    now = whole_minute(api.clock.now())
    await put_schedule(api, "a", active_since=now - timedelta(seconds=30))
    async with parts(kubeconfig, namespace) as operator:
        await see(operator)
        await operator.firing.drain(now + timedelta(seconds=1))
        await operator.status.flush(operator.index)
    status = (await api.schedules.get("a")).status
    (ready,) = (each for each in status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "CreateForbidden")
    assert "cannot create resource" in ready.message
    assert "rbac.create=true" in ready.message, "what gives the right"
    assert status.last_due_time is None


async def test_a_namespace_that_ends(
    control_plane: Cluster,
    api: SchedulerApi,
    admin_kubeconfig: Path,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """AL-06: the namespace is being deleted: one log line, no condition, no hot retry."""
    await put_provider(api)
    now = whole_minute(api.clock.now())
    for name in ("a", "b"):
        await put_schedule(api, name, active_since=now - timedelta(seconds=30))
    async with parts(admin_kubeconfig, namespace) as operator:
        await see(operator)
        held = json.dumps({"metadata": {"finalizers": ["tests.astrabox.io/held"]}})
        for name in ("a", "b"):
            control_plane.kubectl("patch", "dsched", name, "-n", namespace, "--type=merge", "-p", held)
        control_plane.kubectl("delete", "namespace", namespace, "--wait=false")
        await operator.firing.drain(now + timedelta(seconds=1))
        await operator.firing.drain(now + timedelta(seconds=2))
        free = json.dumps({"metadata": {"finalizers": []}})
        for name in ("a", "b"):
            control_plane.kubectl("patch", "dsched", name, "-n", namespace, "--type=merge", "-p", free)
    assert len([r for r in caplog.records if "namespace is being deleted" in r.getMessage()]) == 1
    assert all(entry.trouble is None for entry in operator.index)
    errors = [
        s.value
        for m in operator.metrics.create_errors.collect()
        for s in m.samples
        if s.name.endswith("_total")
    ]
    assert sum(errors) == 2


async def test_a_large_payload_is_verbatim_in_the_run(
    api: SchedulerApi, admin_kubeconfig: Path, namespace: str
) -> None:
    """AL-04: 300 KiB of text, 1.0 and key order included; nothing is written to the schedule."""
    payload = '{"z":1.0,"a":"' + "x" * 300_000 + '"}'
    await put_provider(api)
    now = whole_minute(api.clock.now())
    made = await put_schedule(api, "a", payload=payload, active_since=now - timedelta(seconds=30))
    async with parts(admin_kubeconfig, namespace) as operator:
        await see(operator)
        await operator.firing.drain(now + timedelta(seconds=1))
    (run,) = await api.runs.list_for_deployment("a")
    assert run.spec.payload == payload
    assert (await api.schedules.get("a")).metadata.resource_version == made.resource_version


async def test_a_status_given_at_creation_does_not_count(api: SchedulerApi, namespace: str) -> None:
    """AL-09: a run is born without status, which reads as Queued."""
    spec = RunSpec(deployment_id="a", payload="{}")
    run = RunInvocation(metadata=ObjectMeta(name="m-1"), spec=spec)
    await api.runs.create(run.changed(status=run.status.changed(phase=Phase.SUCCEEDED)))
    assert (await api.runs.get("m-1")).status.phase == Phase.QUEUED


async def test_history_is_pruned_with_preconditions_and_outlives_its_schedule(
    api: SchedulerApi, admin_kubeconfig: Path, namespace: str
) -> None:
    """RT-01, RT-04, RT-06: limit 3, ten finished runs; the schedule is deleted and the runs stay."""
    await put_provider(api)
    now = whole_minute(api.clock.now())
    await put_schedule(api, "a", active_since=now - timedelta(minutes=9, seconds=30))
    async with parts(
        admin_kubeconfig, namespace, HISTORY_LIMIT="3", CATCH_UP_WINDOW_SECONDS="600"
    ) as operator:
        await see(operator)
        assert (await operator.firing.drain(now + timedelta(seconds=1))).fired == 10
        await api.schedules.delete("a")
        for run in await api.runs.list_for_deployment("a"):
            patch = status_patch(run.status, with_cancellation(run.status, Cancellation.DISABLED, now))
            await api.runs.patch_status(run.metadata.name, patch, run.metadata.resource_version)
        prune = operator._retention.prune
        assert await prune(now + timedelta(minutes=5)) == 0, "younger than twice the window"
        assert await prune(now + timedelta(minutes=25)) == 7
    assert len(await api.runs.list_for_deployment("a")) == 3


async def test_orphans_are_cancelled_once_nobody_is_there(
    api: SchedulerApi, admin_kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run of the tail, on a real API server: cancelled, with its condition, by a guarded patch."""
    now = whole_minute(api.clock.now(), 1)
    await put_schedule(api, "a", active_since=now - timedelta(seconds=30))
    await put_provider(api)
    async with parts(admin_kubeconfig, namespace) as operator:
        await see(operator)
        assert (await operator.firing.drain(now + timedelta(seconds=1))).fired == 1
        assert await operator._orphans.settle(now) == 0
        lease = await api.leases.get("astrabox-1")
        await api.leases.replace(lease.changed(spec=lease.spec.changed(holder_identity=None)))
        await operator.attendance.refresh()
        late = now + CATCH_UP_WINDOW + timedelta(seconds=1)
        assert await operator._orphans.settle(late) == 0, "seen for too short a time"
        monkeypatch.setattr(operator._poller, "steady_for", lambda: 60.0)
        assert await operator._orphans.settle(now + CATCH_UP_WINDOW) == 0, "its process may still come back"
        assert await operator._orphans.settle(late) == 1
    (run,) = await api.runs.list_for_deployment("a")
    assert run.status.phase == Phase.CANCELLED
    assert run.status.last_error is not None
    assert MARKER not in run.status.last_error


async def test_health_names_what_is_stale(admin_kubeconfig: Path, api: SchedulerApi, namespace: str) -> None:
    """WA-15: the age of the last step and sweep, and a watch that stays behind, make liveness fail."""
    async with parts(admin_kubeconfig, namespace) as operator:
        assert operator.alive() == (), "while it waits for its start it is alive"
        assert "first look" in operator.ready()[0]
        now = api.clock.monotonic()
        operator._started = operator.firing.completed = now
        operator.preflight.waiting_for = None
        assert operator.ready() == ["the schedules are not loaded yet"]
        await operator.sweep.sweep(api.clock.now())
        assert (operator.alive(), operator.ready()) == ([], [])
        operator.firing.completed = now - 60
        operator.sweep.completed = operator.sweep.behind_since = now - 80
        told = operator.alive()
        assert [text.split(":")[0] for text in told] == [
            "firing loop",
            "sweep of the schedules against a fresh list",
            "watch on schedules, which missed a change",
        ]
        operator.firing.completed = now
        operator.sweep.completed, operator.sweep.behind_since = now, None
        operator.sweep.loaded.clear()
        operator._started = now - 70
        assert [text.split(":")[0] for text in operator.alive()] == ["load of the schedules by the watch"]
        operator.sweep.heard()
        assert operator.alive() == [], "a load that takes long is no reason as long as it goes on"
        await operator.keeper.release()
        assert "the Lease of this operator is not held" in operator.ready()
