"""Whatever a handler does, its run goes on, and what is cut short by us has not failed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Self

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
        await Calls(world, 0.01, 5.0).start_session(run)


class Stubborn(World):
    """Its first call ends at no cancellation, only when it is let go; `grace` in seconds."""

    def __init__(self, timeout: float, grace: float) -> None:
        super().__init__()
        self.desk = replace(self.desk, calls=Calls(self, timeout, grace))
        self.begun, self.let_go = asyncio.Event(), asyncio.Event()
        self.cancellations = 0
        self.during = self.goes_on

    async def goes_on(self, _: str) -> None:
        self.begun.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                self.cancellations += 1
        raise ValueError("Summarise")  # nobody is there to take it

    async def ended(self, task: asyncio.Task[datetime | None]) -> datetime | None:
        """Its result; waited for in a way that ends though the call does not."""
        await asyncio.wait({task}, timeout=5.0)
        assert task.done(), "the attempt waits for a call that does not end"
        return task.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing of it may reach the loop's handler of exceptions that nobody has taken."""
        told: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        self.let_go.set()
        left = [task for task in asyncio.all_tasks() if task.get_name().startswith("astrabox")]
        await asyncio.wait(left, timeout=5.0)
        del left
        gc.collect()
        assert told == []


async def test_a_call_that_swallows_its_limit_has_failed_and_is_tried_again(
    lines: Callable[[], list[str]],
) -> None:
    """G3: AstraBox knows the run by its id, so another call for it may begin before this one has ended."""
    async with Stubborn(timeout=0.05, grace=0.05) as world:
        assert await world.ended(asyncio.create_task(world.attempt(world.run()).carry_out())) is not None
        assert (world.status.phase, world.status.failures, world.cancellations) == (Phase.RETRYING, 1, 1)
        assert world.status.last_error == "start_session did not answer within 0.05 seconds"
        (line,) = [each for each in lines() if each.startswith("ERROR")]
        assert "run r" in line
        assert "restart" in line, "what to do"
        world.during = None
        world.clock.at = world.status.next_attempt_time or NOW
        assert await world.attempt(world.runs.stored["r"]).carry_out() is None
        assert world.status.phase == Phase.SUCCEEDED


async def test_a_call_that_ends_a_moment_after_its_limit_is_waited_for(
    lines: Callable[[], list[str]],
) -> None:
    """It may have much to clear up, and its answer still counts."""
    world = World()
    calls = Calls(world, 0.01, 5.0)

    async def during(_: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.05)

    world.during = during
    assert await calls.start_session(world.run()) == "s1"
    assert lines() == []


async def test_a_call_that_ends_at_no_cancellation_keeps_no_place_for_ever(
    lines: Callable[[], list[str]],
) -> None:
    """Its run was deleted or taken over: no more than a call that has run out of time may it stay in hand."""
    async with Stubborn(timeout=60.0, grace=0.05) as world:
        attempt = world.attempt(world.run())
        task = asyncio.create_task(attempt.carry_out())
        await world.begun.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await world.ended(task)
        assert world.cancellations == 2
        assert (world.status.phase, world.status.failures) == (Phase.RUNNING, 0)
        assert [each[:11] for each in lines() if each.startswith("ERROR")] == ["ERROR run r"]


async def test_a_call_that_is_left_is_cancelled_again_at_a_stop() -> None:
    """G10: it may have swallowed no more than one cancellation."""
    world = World()

    async def during(_: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    world.during = during
    calls = Calls(world, 0.01, 0.01)
    with pytest.raises(CallFailedError):
        await calls.start_session(world.run())
    (left,) = calls._left
    calls.cancel_left()
    await asyncio.wait({left}, timeout=1.0)
    assert left.cancelled()
    assert not calls._left
