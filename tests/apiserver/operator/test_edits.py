"""AstraBox edits while no operator is there: what was due before is fired, or settled with a reason."""

import asyncio
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from astrabox.seams.scheduler import Schedule
from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_crds.schedule import ScheduleStatus
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from astrabox_scheduler_kubernetes.settings import PREFIX
from tests.apiserver.operator.scenery import parts, put_provider, put_schedule, see, whole_minute

NEVER = "0 0 1 1 *"


@pytest.fixture
async def provider(api: SchedulerApi, admin_kubeconfig: Path, namespace: str) -> KubernetesSchedulerProvider:
    """Applies only; it is not started. An operator was here once."""
    async with parts(admin_kubeconfig, namespace):
        pass
    found = {"KUBECONFIG": str(admin_kubeconfig), "NAMESPACE": namespace}
    made = KubernetesSchedulerProvider(environ={PREFIX + name: value for name, value in found.items()})
    made.configure(repository_backend=None)
    return made


async def due_a_minute_ago(api: SchedulerApi) -> datetime:
    """AstraBox is there, and the schedule `a` was due once since it was applied; when."""
    await put_provider(api)
    due = whole_minute(api.clock.now(), -1)
    await put_schedule(
        api, "a", cron=f"{due.minute} {due.hour} * * *", active_since=due - timedelta(seconds=30)
    )
    return due


def edited(**fields: Any) -> Schedule:
    values: dict[str, Any] = {"cron": NEVER, "timezone": "UTC", "enabled": True, "payload": {"new": 1}}
    return Schedule("a", **(values | fields))


async def status(api: SchedulerApi) -> ScheduleStatus:
    return (await api.schedules.get("a")).status


async def test_what_was_due_before_an_edit_fires_once_when_operators_are_back(
    api: SchedulerApi, provider: KubernetesSchedulerProvider, admin_kubeconfig: Path, namespace: str
) -> None:
    """G1: late, with the payload of now; once over two operators and a third that starts later."""
    due = await due_a_minute_ago(api)
    await provider.apply(edited())
    await provider.apply(edited(timezone="Europe/Berlin"))
    async with parts(admin_kubeconfig, namespace) as first, parts(admin_kubeconfig, namespace) as second:
        for each in (first, second):
            await see(each)
            await each.attendance.refresh()
        now = api.clock.now()
        await asyncio.gather(first.firing.drain(now), second.firing.drain(now))
        for each in (first, second):
            await each.status.flush(each.index)
    (run,) = [await api.runs.get(meta.name) for meta in await api.runs.list_unfinished_metadata()]
    assert (run.spec.due_time, run.spec.payload) == (due, '{"new":1}')
    assert (await status(api)).last_due_time == due
    async with parts(admin_kubeconfig, namespace) as third:
        await see(third)
        await third.firing.drain(api.clock.now())
        assert third.metrics.registry.get_sample_value("astrabox_scheduler_operator_confirm_reads_total") == 0
    assert len(await api.runs.list_unfinished_metadata()) == 1
    await provider.apply(edited())
    assert (await api.schedules.get("a")).spec.earlier_rules is None, "settled: nothing more is owed"


async def test_what_a_disable_overtook_is_skipped_with_its_reason(
    api: SchedulerApi, provider: KubernetesSchedulerProvider, admin_kubeconfig: Path, namespace: str
) -> None:
    """G5, and the answer to why it did not run."""
    due = await due_a_minute_ago(api)
    await provider.apply(edited(enabled=False))
    await provider.apply(edited())
    async with parts(admin_kubeconfig, namespace) as operator:
        await see(operator)
        await operator.firing.drain(api.clock.now())
        await operator.status.flush(operator.index)
        assert (await status(api)).skipped is None
        await operator.firing.drain(api.clock.now() + timedelta(seconds=20))
        await operator.status.flush(operator.index)
    skipped = (await status(api)).skipped
    assert skipped is not None
    assert (skipped.count, skipped.last_due_time, skipped.reason) == (1, due, "ScheduleDisabled")
    assert await api.runs.list_unfinished_metadata() == []


async def test_what_had_fired_before_a_disable_is_not_counted(
    api: SchedulerApi, provider: KubernetesSchedulerProvider, admin_kubeconfig: Path, namespace: str
) -> None:
    """The operator that fired it was lost before it wrote the status."""
    due = await due_a_minute_ago(api)
    async with parts(admin_kubeconfig, namespace) as lost:
        await see(lost)
        await lost.firing.drain(api.clock.now())
    await provider.apply(edited(enabled=False))
    async with parts(admin_kubeconfig, namespace) as operator:
        await see(operator)
        await operator.firing.drain(api.clock.now() + timedelta(seconds=20))
        await operator.status.flush(operator.index)
    after = await status(api)
    assert (after.last_due_time, after.skipped, after.next_due_time) == (due, None, None)


async def test_the_same_again_writes_nothing(
    api: SchedulerApi, provider: KubernetesSchedulerProvider
) -> None:
    """A reconcile that changes nothing leaves earlier rules as they are."""
    await due_a_minute_ago(api)
    await provider.apply(edited())
    before = (await api.schedules.get("a")).metadata.resource_version
    assert (await api.schedules.get("a")).spec.earlier_rules is not None
    await provider.reconcile([edited()])
    assert (await api.schedules.get("a")).metadata.resource_version == before
