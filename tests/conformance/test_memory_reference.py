"""The reference provider passes the whole suite and leaves no task behind."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from astrabox.testing.conformance.errors import Errors
from astrabox.testing.memory_provider import MemoryDeployment
from astrabox.testing.scheduler_conformance import SchedulerProviderContractSuite
from tests.conformance.memory_binding import MemoryBinding


@pytest.fixture
async def store() -> AsyncIterator[MemoryDeployment]:
    before = asyncio.all_tasks()
    deployment = MemoryDeployment()
    yield deployment
    assert not deployment.live, "a provider was not stopped"
    left = {task for task in asyncio.all_tasks() if not task.done()} - before
    assert left <= {asyncio.current_task()}, f"tasks are left: {left}"


class TestMemoryScheduler(MemoryBinding, SchedulerProviderContractSuite):
    pass


class TestMemorySchedulerWithLimit(MemoryBinding, Errors):
    max_active_schedules = 3
