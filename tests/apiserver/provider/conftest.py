"""Providers on a real API server, in a namespace of the test's own."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.apiserver.provider.door import Door, kubeconfig_through, leave, server_of
from tests.apiserver.provider.scenery import Place


@pytest.fixture
def door(admin_kubeconfig: Path) -> Iterator[Door]:
    door = Door(server_of(admin_kubeconfig))
    yield door
    door.end()


@pytest.fixture
async def place(
    crds_installed: None, admin_kubeconfig: Path, namespace: str, door: Door, tmp_path: Path
) -> AsyncIterator[Place]:
    through = kubeconfig_through(admin_kubeconfig, tmp_path / "kubeconfig", door.url, namespace)
    tasks, threads = asyncio.all_tasks(), set(threading.enumerate())
    async with Place(through, namespace, door, admin_kubeconfig) as place:
        yield place
    await leave(door)
    left = {task for task in asyncio.all_tasks() if not task.done()} - tasks
    assert left <= {asyncio.current_task()}, f"tasks are left: {left}"
    lost = {
        each.name
        for each in set(threading.enumerate()) - threads
        if each.name.startswith(("lease", "astrabox"))
    }
    assert not lost, f"threads are left: {lost}"
