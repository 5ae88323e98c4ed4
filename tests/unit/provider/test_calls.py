"""Whatever a handler does, its run goes on, and what is cut short by us has not failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from astrabox.seams.scheduler import RunPermanentError
from astrabox_scheduler_crds.run import Phase, RunStatus
from astrabox_scheduler_kubernetes.calls import CallFailedError, Calls
from tests.unit.provider.memory_runs import NOW, World


class OddError(BaseException):
    """No Exception, as some libraries use it for their own ends."""


async def raises_odd(_: str) -> None:
    raise OddError("Summarise")


async def raises_a_group(_: str) -> None:
    raise BaseExceptionGroup("Summarise", [OddError(), ValueError()])


async def cancels_itself(_: str) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)


async def leaves_a_cancellation_behind(_: str) -> None:
    """As a time limit does that does not take its cancellation back."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError:
        raise ValueError("late") from None


@pytest.mark.parametrize("call", ["start_session", "admit_turn s1"])
@pytest.mark.parametrize(
    "behaviour",
    [raises_odd, raises_a_group, cancels_itself, leaves_a_cancellation_behind],
)
async def test_whatever_a_handler_raises_is_a_failure_of_its_run(
    call: str, behaviour: Callable[[str], Awaitable[None]]
) -> None:
    world = World()

    async def during(now: str) -> None:
        if now == call:
            await behaviour(now)

    world.during = during
    assert await world.attempt(world.run()).carry_out() is not None
    assert (world.status.phase, world.status.failures) == (Phase.RETRYING, 1)
    world.during = None
    world.clock.at = world.status.next_attempt_time or NOW
    assert await world.attempt(world.runs.stored["r"]).carry_out() is None
    assert world.status.phase == Phase.SUCCEEDED


@pytest.mark.parametrize("error", [RuntimeError("in a rollback"), RunPermanentError("gone"), OddError()])
@pytest.mark.parametrize("answers", [False, True])
async def test_what_a_handler_makes_of_our_cancellation_is_no_failure(
    error: BaseException, *, answers: bool
) -> None:
    """A stop uses up no attempt, and ends no run for good."""
    world = World(max_attempts=2)
    begun = asyncio.Event()

    async def during(_: str) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if not answers:
                raise error from None

    world.during = during
    attempt = world.attempt(world.run())
    task = asyncio.create_task(attempt.carry_out())
    await begun.wait()
    world.stopping = True
    task.cancel()
    outcome = (await asyncio.gather(task, return_exceptions=True))[0]
    assert type(outcome).__name__ in ("CancelledError", "HandedOver")
    await attempt.hand_over()
    status: RunStatus = world.status
    assert (status.phase, status.attempts, status.failures, status.releases) == (Phase.RUNNING, 1, 0, 1)
    assert status.session_id == ("s1" if answers else None)


async def test_a_limit_that_runs_out_is_told_whatever_the_handler_raises_then() -> None:
    world = World()

    async def during(_: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise RuntimeError("in a rollback") from None

    world.during = during
    run = world.run()
    with pytest.raises(CallFailedError, match="start_session did not answer within"):
        await Calls(world, 0.01).start_session(run)
