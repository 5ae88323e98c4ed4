"""The order in which an operator starts and ends."""

import asyncio
import json
import re
from pathlib import Path
from typing import Final

import pytest

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.errors import ServerError
from astrabox_scheduler_crds.firing import SkipReason
from astrabox_scheduler_crds.lease import LEASE_DURATION_SECONDS, Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_operator.app import LOAD_SECONDS
from astrabox_scheduler_operator.entry import Gap
from tests.apiserver.operator.scenery import (
    bind_role,
    eventually,
    operator_with,
    parts,
    process,
    put_provider,
    put_schedule,
    see,
    whole_minute,
)
from tests.webhooks import away
from tools.controlplane import Cluster

_WEBHOOK: Final = "validatingwebhookconfiguration"


async def test_an_operator_owns_no_share_before_it_knows_the_schedules(
    api: SchedulerApi, admin_kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OO-05: what nobody fires until a new operator has loaded its index would be late in every roll-out."""
    await put_provider(api)
    await put_schedule(api, "a", cron="0 0 1 1 *")
    operator = await operator_with(admin_kubeconfig, namespace)
    monkeypatch.setattr(operator._watch, "start", lambda: None)  # it brings nothing yet
    stop = asyncio.Event()
    running = asyncio.create_task(operator.run(stop))

    async def swept_again() -> bool:
        assert not running.done()
        assert not operator.keeper.held()
        assert [each for each in await api.leases.list() if each.role == "operator"] == []
        return operator.sweep.completed is not None and operator.sweep.completed > first

    async def written() -> bool:
        return (await api.schedules.get("a")).status.next_due_time is not None

    try:
        for _ in range(2):
            first = operator.sweep.completed or 0.0
            await eventually(swept_again)
        assert operator.ready() == [
            "the Lease of this operator is not held",
            "the schedules are not loaded yet",
        ]
        assert operator.alive() == []
        operator._started = operator._started or 0.0
        operator._started -= LOAD_SECONDS
        operator.sweep.heard()  # the watch brings this and that, and it does not come to an end
        assert [each.partition(":")[0] for each in operator.alive()] == ["load of the schedules"]
        await see(operator)
        await eventually(written)
        assert operator.ready() == operator.alive() == []
        (lease,) = [each for each in await api.leases.list() if each.role == "operator"]
        assert lease.metadata.name == operator.keeper.name
    finally:
        stop.set()
        await running
        await operator._api.aclose()


async def test_an_operator_that_is_ended_while_it_loads_leaves_nothing(
    api: SchedulerApi, admin_kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put_schedule(api, "a")
    operator = await operator_with(admin_kubeconfig, namespace)
    monkeypatch.setattr(operator._watch, "start", lambda: None)
    stop = asyncio.Event()
    running = asyncio.create_task(operator.run(stop))

    async def swept() -> bool:
        return operator.sweep.completed is not None

    await eventually(swept)
    stop.set()
    await running
    await operator._api.aclose()
    assert [each for each in await api.leases.list() if each.role == "operator"] == []


async def test_an_operator_that_ends_tells_what_nobody_else_knows(
    control_plane: Cluster,
    api: SchedulerApi,
    admin_kubeconfig: Path,
    namespace: str,
) -> None:
    """OB-05: the gap that it has gathered is not over yet."""
    await put_schedule(api, "a", cron="0 0 1 1 *")
    operator = await operator_with(admin_kubeconfig, namespace)
    stop = asyncio.Event()
    running = asyncio.create_task(operator.run(stop))

    async def held() -> bool:
        return operator.keeper.held()

    await eventually(held)
    entry = operator.index.get("a")
    assert entry is not None
    due = whole_minute(api.clock.now())
    entry.gaps = (Gap(due, due, 1, SkipReason.NO_PROVIDER),)
    stop.set()
    await running
    await operator._api.aclose()
    told = control_plane.kubectl("get", "events", "-n", namespace, "-o", "jsonpath={.items[*].reason}")
    assert told == "DueTimesSkipped"


async def test_an_operator_that_sees_nobody_says_so(
    api: SchedulerApi, admin_kubeconfig: Path, namespace: str
) -> None:
    """G1: its Lease is renewed, and lists of Leases fail: alive, and nothing fires."""
    async with parts(admin_kubeconfig, namespace) as operator:
        operator.preflight.waiting_for = None
        operator.sweep.loaded.set()
        assert operator.ready() == []
        listed = operator._poller._listed
        assert listed is not None
        operator._poller._listed = listed - LEASE_DURATION_SECONDS - 1
        (told,) = operator.ready()
        assert re.match(r"the Leases were last listed 1[6-9] s ago, so nobody counts as there", told)
        assert "the right to list leases" in told
        await operator.attendance.refresh()
        assert operator.ready() == []


async def test_a_first_lease_that_is_not_stored_ends_no_process(
    control_plane: Cluster, api: SchedulerApi, namespace: str
) -> None:
    """G1: not ready meanwhile, and it fires seconds after a Lease can be stored again."""
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    await put_provider(api)
    await put_schedule(api, "a")
    control_plane.kubectl("apply", "-f", "-", input=json.dumps(without_webhook(namespace)))
    probe = Lease(metadata=ObjectMeta(name="probe"), spec=LeaseSpec(holder_identity="probe"))

    async def refused() -> bool:
        try:
            await api.leases.create(probe)
        except ServerError:
            return True
        await api.leases.delete("probe")
        return False

    async def fired() -> bool:
        return bool(await api.runs.list_for_deployment("a"))

    try:
        await eventually(refused)
        async with process(kubeconfig, namespace) as operator:

            async def tried() -> bool:
                return bool(operator.told("no Lease can be taken, trying on"))

            await eventually(tried)
            assert await operator.health("/readyz") == (503, "the Lease of this operator is not held\n")
            assert (await operator.health("/healthz"))[0] == 200
            control_plane.kubectl("delete", _WEBHOOK, f"away-{namespace}")
            await eventually(fired)
            assert len(operator.told("no Lease can be taken, trying on")) == 1
            assert await operator.stop() == 0
    finally:
        control_plane.kubectl("delete", _WEBHOOK, f"away-{namespace}", "--ignore-not-found")


def without_webhook(namespace: str) -> dict[str, object]:
    """No Lease is created in this namespace: what has to be asked about it does not answer."""
    rule = {
        "apiGroups": ["coordination.k8s.io"],
        "apiVersions": ["*"],
        "operations": ["CREATE"],
        "resources": ["leases"],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": f"away-{namespace}"},
        "webhooks": [away("away.astrabox.test", namespace, rule)],
    }
