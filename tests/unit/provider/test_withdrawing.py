"""Runs that were refused and may have been saved all the same, as their process stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from astrabox_scheduler_client.errors import Unreachable
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import RunInvocation, RunSpec
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_kubernetes.store import Store
from astrabox_scheduler_kubernetes.timing import Timing
from astrabox_scheduler_kubernetes.withdrawing import Unsaved

TIMING = Timing(first_pause=0.01, longest_pause=0.02)
RUN = RunInvocation(
    metadata=ObjectMeta(name="r", uid="u", resource_version="1"),
    spec=RunSpec(deployment_id="d", trigger="manual", payload="{}"),
)


class Runs:
    """The run is there, and the store answers once it is `back`."""

    def __init__(self) -> None:
        self.back = asyncio.Event()
        self.patched: list[str] = []

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Any]:
        yield SimpleNamespace(runs=self, clock=ServerClock())

    async def get(self, name: str) -> RunInvocation:
        if not self.back.is_set():
            raise Unreachable("away")
        return RUN

    async def patch_status(self, name: str, status: Any, version: str | None) -> None:
        self.patched.append(status["phase"])


def withdrawn(unsaved: Unsaved) -> None:
    with unsaved.undecided("r"):
        unsaved.withdraw(RUN)


async def test_a_stop_waits_for_a_store_that_comes_back() -> None:
    """G6: else the run is started by another process, and its user has asked again."""
    runs = Runs()
    unsaved = Unsaved(cast(Store, runs), TIMING)
    withdrawn(unsaved)
    stop = asyncio.create_task(unsaved.stop(5.0))
    await asyncio.sleep(0.05)
    assert not stop.done()
    runs.back.set()
    await stop
    assert runs.patched == ["Cancelled"]


async def test_a_stop_gives_up_in_time_and_leaves_no_task() -> None:
    """Neither of what was under way nor of what has failed while it waited."""
    unsaved = Unsaved(cast(Store, Runs()), TIMING)
    withdrawn(unsaved)
    stop = asyncio.create_task(unsaved.stop(0.1))
    await asyncio.sleep(0)
    withdrawn(unsaved)
    async with asyncio.timeout(2.0):
        await stop
    await asyncio.sleep(0)
    assert not unsaved._tasks


async def test_a_stop_that_is_cancelled_leaves_no_task_either() -> None:
    unsaved = Unsaved(cast(Store, Runs()), TIMING)
    withdrawn(unsaved)
    stop = asyncio.create_task(unsaved.stop(60.0))
    await asyncio.sleep(0)
    stop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stop
    await asyncio.sleep(0)
    assert not unsaved._tasks
