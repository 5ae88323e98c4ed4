"""The contract suite on the real provider, with the operator's firing loop and a real API server."""

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from astrabox.seams.scheduler import SchedulerProvider
from astrabox.testing.conformance.errors import Errors
from astrabox.testing.scheduler_conformance import ConformanceBase, SchedulerProviderContractSuite
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from tests.apiserver.provider.door import Door, kubeconfig_through, leave, server_of
from tests.apiserver.provider.scenery import QUICK, Place
from tools.controlplane import Cluster


@pytest.fixture
async def store(control_plane: Cluster, crds_installed: None, tmp_path: Path) -> AsyncIterator[Place]:
    namespace = control_plane.create_namespace(f"conformance-{secrets.token_hex(4)}")
    door = Door(server_of(control_plane.kubeconfig))
    through = kubeconfig_through(control_plane.kubeconfig, tmp_path / "kubeconfig", door.url, namespace)
    before = asyncio.all_tasks(), set(threading.enumerate())
    try:
        async with Place(through, namespace, door, control_plane.kubeconfig) as place:
            yield place
    finally:
        await leave(door)
        left = {task for task in asyncio.all_tasks() if not task.done()} - before[0]
        threads = {each.name for each in set(threading.enumerate()) - before[1] if "lease" in each.name}
        door.end()
        control_plane.discard_namespace(namespace)
    assert left <= {asyncio.current_task()}, f"tasks are left: {left}"
    assert not threads, f"threads are left: {threads}"


class KubernetesBinding(ConformanceBase):
    settle_timeout = 20.0
    stop_timeout = 8.0
    reconcile_grace = QUICK.recently + 0.1
    limit: str = ""
    place: Place

    @pytest.fixture(autouse=True)
    def _remember(self, store: Place) -> None:
        self.place = store

    def make_provider(self, store: Place) -> KubernetesSchedulerProvider:
        return store.provider(**({"MAX_ACTIVE_SCHEDULES": self.limit} if self.limit else {}))

    async def fire_due_times(
        self, provider: SchedulerProvider, deployment_id: str, start: datetime, end: datetime
    ) -> None:
        await self.place.fire(start, end)

    def now(self, store: Place) -> datetime:
        return store.clock.now()

    def store_fault(self, store: Place) -> AbstractAsyncContextManager[Any]:
        return store.door.closed()


class TestKubernetesScheduler(KubernetesBinding, SchedulerProviderContractSuite):
    pass


class TestKubernetesSchedulerWithLimit(KubernetesBinding, Errors):
    limit = "3"
