"""The order in which an operator starts and ends."""

import asyncio
from pathlib import Path

import pytest

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_crds.firing import SkipReason
from astrabox_scheduler_operator.app import LOAD_SECONDS
from astrabox_scheduler_operator.entry import Gap
from tests.apiserver.operator.scenery import (
    eventually,
    operator_with,
    put_provider,
    put_schedule,
    see,
    whole_minute,
)
from tools.controlplane import Cluster


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
