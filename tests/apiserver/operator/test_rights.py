"""The rights of an operator, one by one: each is missed when it is gone, and those for rare work are used."""

from __future__ import annotations

import re
from datetime import timedelta

from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.deletion import deleted
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.permissions import OPERATOR_PERMISSIONS
from astrabox_scheduler_crds.run import RunInvocation, RunSpec
from astrabox_scheduler_crds.transitions import Cancellation, status_patch, with_cancellation
from astrabox_scheduler_operator.preflight import Preflight
from tests.apiserver.operator.scenery import (
    bind_role,
    eventually,
    parts,
    process,
    put_provider,
    put_schedule,
)
from tools.controlplane import Cluster

LONG_AFTER = timedelta(hours=2)
"""Longer than anything is kept."""


async def test_each_right_that_is_missing_is_named(
    control_plane: Cluster, crds_installed: None, namespace: str
) -> None:
    """IN-06: what an older Role of the chart lacks after an upgrade of the image alone."""
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    own = await open_api(ConnectSettings(kubeconfig=str(kubeconfig)), namespace)
    preflight = Preflight(own.discovery, own.access, namespace)
    try:
        for taken in OPERATOR_PERMISSIONS:
            few = tuple(each for each in OPERATOR_PERMISSIONS if each != taken)
            bind_role(control_plane, namespace, few)
            wanted = f"permissions in namespace {namespace} are missing: {taken}: "

            async def told(wanted: str = wanted) -> bool:
                return (await preflight.missing() or "").startswith(wanted)

            await eventually(told)
        bind_role(control_plane, namespace)

        async def nothing() -> bool:
            return await preflight.missing() is None

        await eventually(nothing)
    finally:
        await own.aclose()


async def test_what_is_deleted_after_hours_is_deleted_with_the_rights_of_the_table(
    control_plane: Cluster, api: SchedulerApi, namespace: str
) -> None:
    """RT-01: no other test of the Role lasts until a run, a Lease and a deleted schedule have to go."""
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    await put_provider(api)
    now = api.clock.now()
    spec = LeaseSpec(
        holder_identity="gone",
        lease_duration_seconds=15,
        acquire_time=now - LONG_AFTER,
        renew_time=now - LONG_AFTER,
    )
    of_old = ObjectMeta(name="gone", labels={labels.ROLE_LABEL: "provider"})
    await api.leases.create(Lease(metadata=of_old, spec=spec))
    await api.schedules.create(deleted("unwanted", None, now))
    for name in ("m-1", "m-2"):
        metadata = ObjectMeta(name=name, labels={labels.DEPLOYMENT_LABEL: "a"})
        await api.runs.create(RunInvocation(metadata=metadata, spec=RunSpec(deployment_id="a", payload="{}")))
        run = await api.runs.get(name)
        patch = status_patch(run.status, with_cancellation(run.status, Cancellation.DISABLED, now))
        await api.runs.patch_status(name, patch, run.metadata.resource_version)
    async with parts(kubeconfig, namespace, HISTORY_LIMIT="1") as operator:
        assert await operator._retention.prune(now + LONG_AFTER) == 1
    assert len(await api.runs.list_for_deployment("a")) == 1
    assert "gone" not in {each.metadata.name for each in await api.leases.list()}
    assert (await api.schedules.list()).items == []


async def test_a_process_that_cannot_write_statuses_fires_and_tells_it_once(
    control_plane: Cluster, api: SchedulerApi, namespace: str
) -> None:
    """IN-06: a right taken away at run time; a restart would not help, so it stays ready."""
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    await put_provider(api)
    await put_schedule(api, "first")
    async with process(kubeconfig, namespace) as operator:

        async def written() -> bool:
            return (await api.schedules.get("first")).status.last_due_time is not None

        await eventually(written)
        status = (f"{labels.SCHEDULE_PLURAL}/status", "patch")
        few = tuple(each for each in OPERATOR_PERMISSIONS if (each.resource, each.verb) != status)
        bind_role(control_plane, namespace, few)
        names = [f"s{number}" for number in range(20)]
        for name in names:
            await put_schedule(api, name)

        async def fired() -> bool:
            return all([await api.runs.list_for_deployment(name) for name in names])

        async def failing() -> bool:
            metrics = (await operator.health("/metrics"))[1]
            (count,) = re.findall(r'_status_errors_total{reason="Forbidden"} (\S+)', metrics)
            return float(count) >= 8

        await eventually(fired)
        await eventually(failing)
        (told,) = operator.told("statuses of schedules cannot be written")[:1]
        assert 'cannot patch resource "deploymentschedules/status"' in told["message"]
        assert "rbac.create=true" in told["message"]
        assert await operator.health("/readyz") == (200, "ok\n")
        bind_role(control_plane, namespace)

        async def over() -> bool:
            return bool(operator.told("statuses of schedules can be written again"))

        await eventually(over, 60.0)
        warnings = [each for each in operator.told("cannot be written") if each["level"] == "WARNING"]
        assert len(warnings) == 1
        assert await operator.stop() == 0
