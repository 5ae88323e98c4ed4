"""Runs that lose one process after another are tried one at a time, so that the guilty one fails alone."""

import asyncio

import pytest

from astrabox_scheduler_crds.run import Phase, RunStatus
from astrabox_scheduler_crds.transitions import RetryPolicy
from astrabox_scheduler_kubernetes.suspects import Suspects, is_suspect
from tests.unit.provider.memory_runs import World

LOST_TWICE = RunStatus(phase=Phase.RUNNING, attempts=2)


@pytest.mark.parametrize(
    ("phase", "attempts", "releases", "most", "suspect"),
    [
        (Phase.QUEUED, 0, 0, 1, False),
        (Phase.RUNNING, 1, 0, 3, False),
        (Phase.RUNNING, 2, 0, 3, True),
        (Phase.RUNNING, 1, 0, 2, True),
        (Phase.RUNNING, 3, 0, 8, False),
        (Phase.RUNNING, 4, 0, 8, True),
        (Phase.RUNNING, 9, 9, 8, False),
        (Phase.RUNNING, 9, 5, 8, True),
        (Phase.RETRYING, 7, 0, 8, False),
    ],
)
def test_who_is_suspect(phase: Phase, attempts: int, releases: int, most: int, suspect: bool) -> None:
    """A failure that was told is none: it has not taken its process down."""
    status = RunStatus(phase=phase, attempts=attempts, releases=releases)
    assert is_suspect(status, RetryPolicy(max_attempts=most)) is suspect


async def test_one_suspect_at_a_time_in_their_order() -> None:
    suspects = Suspects(RetryPolicy(max_attempts=3))
    order: list[str] = []
    gates = {name: asyncio.Event() for name in "abc"}

    async def one(name: str) -> None:
        async with suspects.turn(LOST_TWICE):
            order.append(name)
            await gates[name].wait()

    tasks = {name: asyncio.create_task(one(name)) for name in "abc"}
    await asyncio.sleep(0)
    assert (order, suspects.waiting) == (["a"], 2)
    async with suspects.turn(RunStatus()):  # any other run goes on
        tasks["b"].cancel()
        gates["a"].set()
        await asyncio.gather(tasks["a"], tasks["b"], return_exceptions=True)
    await asyncio.sleep(0)
    assert (order, suspects.waiting) == (["a", "c"], 0)
    gates["c"].set()
    await tasks["c"]


async def test_a_suspect_that_waits_has_not_begun() -> None:
    """It uses up no attempt if the one before it takes the process down."""
    world = World(max_attempts=3)
    attempt = world.attempt(world.run(status=LOST_TWICE))
    async with world.desk.suspects.turn(LOST_TWICE):
        task = asyncio.create_task(attempt.carry_out())
        for _ in range(10):
            await asyncio.sleep(0)
        assert (world.log, world.status.attempts) == ([], 2)
    assert await task is None
    assert (world.status.phase, world.status.attempts) == (Phase.SUCCEEDED, 3)
