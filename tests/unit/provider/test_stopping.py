"""What a stop that is itself cancelled leaves behind: nothing that calls, watches or takes runs in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from astrabox_scheduler_kubernetes.dispatcher import Dispatcher
from tests.unit.provider.memory_runs import World


class Assigned:
    """One run that is ours, and a watch that brings nothing more."""

    def __init__(self, world: World) -> None:
        self._run = world.run()

    async def list_assigned(self, _: str) -> Any:
        return SimpleNamespace(items=[self._run], resource_version="1")

    async def watch(self, *_: Any) -> AsyncIterator[Any]:
        await asyncio.Event().wait()
        yield

    async def list_unfinished_metadata(self) -> list[Any]:
        return [self._run.metadata]


async def for_ever() -> None:
    await asyncio.Event().wait()


async def nothing() -> None:
    pass


def dispatcher_of(world: World) -> Dispatcher:
    presence = SimpleNamespace(live=frozenset({"me"}), assignable=frozenset({"me"}))
    poller = SimpleNamespace(run=for_ever, refresh=nothing)
    return world.dispatcher(Assigned(world), SimpleNamespace(now=lambda _: presence, poller=poller))


def ours() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task.get_name().startswith("astrabox ")}


@pytest.mark.parametrize("turns", [1, 2, 3, 4])
async def test_a_stop_that_is_cancelled_at_once_leaves_nothing_going(turns: int) -> None:
    """Its Lease is released next: others begin the run, and the connection of the intake is closed."""
    world = World()
    begun = asyncio.Event()

    async def during(_: str) -> None:
        begun.set()
        await for_ever()

    world.during = during
    dispatcher = dispatcher_of(world)
    dispatcher.start()
    async with asyncio.timeout(5.0):
        await begun.wait()
    names = {task.get_name() for task in ours()}
    assert {"astrabox run r", "astrabox start_session", "astrabox intake", "astrabox pump"} <= names
    stop = asyncio.create_task(dispatcher.drain(30.0))
    for _ in range(turns):
        await asyncio.sleep(0)
    stop.cancel()
    await asyncio.wait({stop}, timeout=5.0)
    assert stop.cancelled()
    if left := ours():
        _, left = await asyncio.wait(left, timeout=1.0)
    assert left == set()
