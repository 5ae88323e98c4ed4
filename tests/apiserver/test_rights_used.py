"""IN-06: what each side may do is what it does. The API server's audit log says what that was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.deletion import deleted
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import scheduled_run_name
from astrabox_scheduler_crds.permissions import (
    OPERATOR_PERMISSIONS,
    PROVIDER_PERMISSIONS,
    Permission,
)
from astrabox_scheduler_crds.run import RunInvocation, RunSpec
from astrabox_scheduler_operator.index import MAX_KEPT_PAYLOAD
from tests.apiserver.operator.scenery import bind_role, eventually, parts, process, put_provider, put_schedule
from tests.apiserver.provider.door import Door, server_of
from tests.apiserver.provider.handlers import Instant, rule
from tests.apiserver.provider.scenery import Place
from tests.definitions import install_definitions
from tools.controlplane import ControlPlane

GROUPS = (labels.GROUP, "coordination.k8s.io", "events.k8s.io")
LOG = "audit.log"
LONG_AFTER = timedelta(hours=2)
"""Longer than anything is kept."""


def audited(directory: Path) -> Sequence[str]:
    """Flags that make the API server note who has asked for what, before it answers."""
    policy = directory / "audit-policy.json"
    rules = [
        {"level": "Metadata", "resources": [{"group": group} for group in GROUPS]},
        {"level": "None"},
    ]
    stages = {"omitStages": ["ResponseStarted", "ResponseComplete"]}
    policy.write_text(
        json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules} | stages)
    )
    return (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={directory / LOG}",
        "--audit-log-mode=blocking",
    )


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane that keeps such a log."""
    with ControlPlane(apiserver_flags=audited) as plane:
        install_definitions(plane)
        yield plane


def used(plane: ControlPlane, namespace: str, account: str) -> set[Permission]:
    """Every right that the account has asked for, whether it has it or not."""
    found = set()
    for line in (plane.directory / LOG).read_text().splitlines():
        event = json.loads(line)
        if event["user"]["username"] == f"system:serviceaccount:{namespace}:{account}":
            asked = event["objectRef"]
            resource = "/".join(filter(None, (asked["resource"], asked.get("subresource"))))
            found.add(Permission(asked["apiGroup"], resource, event["verb"]))
    return found


async def test_an_operator_uses_every_right_that_it_has_and_asks_for_no_other(plane: ControlPlane) -> None:
    """From its start to what it deletes after hours."""
    namespace = plane.create_namespace("operator")
    kubeconfig = plane.service_account_kubeconfig(namespace, "operator")
    bind_role(plane, namespace)
    api = await open_api(ConnectSettings(kubeconfig=str(plane.kubeconfig)), namespace)
    try:
        await api.leases.list()  # an answer sets the clock
        now = api.clock.now()
        orphans = [await put_orphan(api, now - timedelta(minutes=minutes)) for minutes in (20, 21)]
        await put_provider(api, since=timedelta(minutes=3))
        large = json.dumps({"p": "x" * MAX_KEPT_PAYLOAD})
        await put_schedule(api, "good", payload=large)
        await put_schedule(api, "mars", time_zone="Mars/Olympus")
        async with process(kubeconfig, namespace) as operator:
            for orphan in orphans:
                await eventually(partial(is_finished, api, orphan), within=90.0)
            assert await operator.stop() == 0
        await put_what_has_been_kept_for_long(api)
        async with parts(kubeconfig, namespace, HISTORY_LIMIT="1") as later:
            await later._retention.prune(api.clock.now() + LONG_AFTER)
    finally:
        await api.aclose()
    assert used(plane, namespace, "operator") == set(OPERATOR_PERMISSIONS)


async def put_orphan(api: SchedulerApi, at: datetime) -> str:
    """The run of a due time, that of this minute, at which nobody was there."""
    due = at.replace(second=0, microsecond=0)
    name = scheduled_run_name("left", due)
    spec = RunSpec(deployment_id="left", trigger="schedule", due_time=due, payload="{}")
    metadata = ObjectMeta(name=name, labels={labels.DEPLOYMENT_LABEL: "left"})
    await api.runs.create(RunInvocation(metadata=metadata, spec=spec))
    return name


async def is_finished(api: SchedulerApi, name: str) -> bool:
    return (await api.runs.get(name)).status.finished_at is not None


async def put_what_has_been_kept_for_long(api: SchedulerApi) -> None:
    """A Lease and a deleted schedule."""
    now = api.clock.now()
    spec = LeaseSpec(
        acquire_time=now - 2 * LONG_AFTER, renew_time=now - LONG_AFTER, lease_duration_seconds=15
    )
    await api.leases.create(
        Lease(metadata=ObjectMeta(name="gone", labels={labels.ROLE_LABEL: "provider"}), spec=spec)
    )
    await api.schedules.create(deleted("unwanted", None, now))


async def test_a_provider_uses_every_right_that_it_has_and_asks_for_no_other(plane: ControlPlane) -> None:
    """Every command of AstraBox, and a run that a lost process has left."""
    namespace = plane.create_namespace("provider")
    kubeconfig = plane.service_account_kubeconfig(namespace, "astrabox")
    bind_role(plane, namespace, PROVIDER_PERMISSIONS, "astrabox")
    door = Door(server_of(plane.kubeconfig))
    try:
        async with (
            Place(kubeconfig, namespace, door, plane.kubeconfig) as place,
            place.running(Instant()) as provider,
        ):
            await put_schedule(place.api, "d", deployment_id="another")
            await provider.reconcile([])
            await provider.apply(rule("d"))
            await provider.apply(rule("d", cron="0 * * * *"))
            await provider.delete("d")
            run = await provider.enqueue("d", {}, trigger="manual")
            left = await place.create_run(assignee="lost")
            for name in (run.run_id, left):
                await place.until_phase(name, "Succeeded")
            again = await provider.enqueue("d", {}, trigger="replay", replayed_from_run_id=run.run_id)
            await place.until_phase(again.run_id, "Succeeded")
            assert len(await provider.list_runs("d")) == 3
    finally:
        door.end()
    assert used(plane, namespace, "astrabox") == set(PROVIDER_PERMISSIONS)
