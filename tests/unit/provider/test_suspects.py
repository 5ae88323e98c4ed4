"""Runs that lose one process after another are tried one at a time, so that the guilty one fails alone."""

import asyncio

import pytest

from astrabox_scheduler_crds.run import Phase, RunStatus
from astrabox_scheduler_crds.transitions import RetryPolicy
from astrabox_scheduler_kubernetes.suspects import Suspects, is_suspect
from tests.unit.provider.memory_runs import World

EIGHT = RetryPolicy(max_attempts=8)
LOST_FOUR_TIMES = RunStatus(phase=Phase.RUNNING, attempts=4)
LAST_ATTEMPT_LEFT = RunStatus(phase=Phase.RUNNING, attempts=7)


@pytest.mark.parametrize(
    ("attempts", "releases", "failures", "most", "suspect"),
    [
        (0, 0, 0, 1, False),
        (1, 0, 0, 2, False),
        (1, 0, 0, 3, False),
        (2, 0, 0, 3, True),
        (2, 0, 0, 4, True),
        (3, 0, 0, 8, False),
        (4, 0, 0, 8, True),
        (9, 9, 0, 8, False),
        (9, 5, 0, 8, True),
        (7, 0, 7, 8, False),
        (5, 1, 4, 8, False),
        (7, 0, 4, 8, False),
        (7, 0, 3, 8, True),
    ],
)
def test_who_is_suspect(attempts: int, releases: int, failures: int, most: int, suspect: bool) -> None:
    """Neither failures nor releases make a suspect, nor one loss: they say nothing against the run."""
    status = RunStatus(phase=Phase.RUNNING, attempts=attempts, releases=releases, failures=failures)
    assert is_suspect(status, RetryPolicy(max_attempts=most)) is suspect


class Queue:
    """Suspects that come in a row; each stays in its attempt until it is let go."""

    def __init__(self, suspects: Suspects) -> None:
        self.suspects = suspects
        self.order: list[str] = []
        self.steps: dict[str, asyncio.Queue[str]] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, status: RunStatus = LOST_FOUR_TIMES) -> None:
        self.steps[name] = asyncio.Queue()
        self.tasks[name] = asyncio.create_task(self._attempt(name, status))
        await settled()

    async def step(self, name: str, step: str) -> None:
        self.steps[name].put_nowait(step)
        await settled()

    async def _attempt(self, name: str, status: RunStatus) -> None:
        async with self.suspects.turn(status) as trial:
            self.order.append(name)
            while (step := await self.steps[name].get()) != "ended":
                getattr(trial, step)()

    async def end(self) -> None:
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        assert self.suspects.waiting == 0


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_one_suspect_at_a_time_in_their_order() -> None:
    queue = Queue(Suspects(EIGHT))
    for name in "abc":
        await queue.come(name)
    assert (queue.order, queue.suspects.waiting) == (["a"], 2)
    await queue.come("other", RunStatus())
    assert queue.order == ["a", "other"], "any other run goes on"
    queue.tasks["b"].cancel()
    await queue.step("a", "ended")
    assert (queue.order, queue.suspects.waiting) == (["a", "other", "c"], 0)
    await queue.end()


async def test_a_trial_is_over_with_the_first_answer() -> None:
    queue = Queue(Suspects(EIGHT))
    for name in "abc":
        await queue.come(name)
    await queue.step("a", "called")
    assert queue.order == ["a"]
    await queue.step("a", "answered")
    assert queue.order == ["a", "b"]
    await queue.step("a", "ended")
    assert queue.order == ["a", "b"], (
        "a trial ends once: the end of the attempt is not that of another's trial"
    )
    await queue.end()


async def test_a_trial_is_over_some_seconds_after_the_call() -> None:
    """A queue of suspects drains though each is in a call for minutes."""
    queue = Queue(Suspects(EIGHT, trial=0.05))
    for name in "abc":
        await queue.come(name)
    await asyncio.sleep(0.1)
    assert queue.order == ["a"], "what is not called yet cannot have survived"
    await queue.step("a", "called")
    await asyncio.sleep(0.1)
    assert queue.order == ["a", "b"]
    await queue.end()


async def test_a_last_attempt_is_on_trial_until_it_ends() -> None:
    """Its loss would end the run for good: no other that may be guilty begins beside it."""
    queue = Queue(Suspects(EIGHT, trial=0.01))
    await queue.come("last", LAST_ATTEMPT_LEFT)
    await queue.come("next")
    await queue.step("last", "called")
    await asyncio.sleep(0.05)
    await queue.step("last", "answered")
    assert queue.order == ["last"]
    await queue.step("last", "ended")
    assert queue.order == ["last", "next"]
    await queue.end()


async def test_who_has_waited_begins_when_there_is_a_place() -> None:
    """One that waits has given its place away: more runs would be in progress than are allowed."""
    free = False
    queue = Queue(Suspects(EIGHT))
    queue.suspects.has_place = lambda: free
    for name in "abc":
        await queue.come(name)
    await queue.step("a", "answered")
    queue.suspects.go_on()
    await settled()
    assert (queue.order, queue.suspects.waiting) == (["a"], 2)
    free = True
    queue.suspects.go_on()
    await settled()
    assert (queue.order, queue.suspects.waiting) == (["a", "b"], 1)
    await queue.end()


@pytest.mark.parametrize("when", ["before its turn comes", "when its turn has come"])
async def test_one_that_is_cancelled_leaves_its_turn_to_the_next(when: str) -> None:
    queue = Queue(Suspects(EIGHT))
    async with queue.suspects.turn(LOST_FOUR_TIMES):
        await queue.come("b")
        await queue.come("c")
        if when == "before its turn comes":
            queue.tasks["b"].cancel()
    if when == "when its turn has come":
        queue.tasks["b"].cancel()
    await settled()
    assert queue.order == ["c"]
    await queue.end()


async def test_a_suspect_that_waits_has_not_begun() -> None:
    """It uses up no attempt if the one before it takes the process down."""
    world = World(max_attempts=3)
    status = RunStatus(phase=Phase.RUNNING, attempts=2)
    attempt = world.attempt(world.run(status=status))
    async with world.desk.suspects.turn(status):
        task = asyncio.create_task(attempt.carry_out())
        await settled()
        assert (world.log, world.status.attempts, attempt.waits) == ([], 2, True)
    assert await task is None
    assert (world.status.phase, world.status.attempts) == (Phase.SUCCEEDED, 3)


@pytest.mark.parametrize("attempts", [4, 7])
@pytest.mark.parametrize("session", [None, "s1"])
async def test_the_next_suspect_begins_once_astrabox_has_answered(attempts: int, session: str | None) -> None:
    """The answer to the first call of the attempt, unless it is the last attempt."""
    world = World()
    suspects = world.desk.suspects
    begun: dict[str, bool] = {}

    async def another() -> None:
        async with suspects.turn(LOST_FOUR_TIMES):
            begun["it"] = True

    async def during(call: str) -> None:
        await settled()
        begun[call] = "it" in begun

    world.during = during
    status = RunStatus(phase=Phase.RUNNING, attempts=attempts, session_id=session)
    task = asyncio.create_task(world.attempt(world.run(status=status)).carry_out())
    await asyncio.sleep(0)
    await another()
    await task
    assert begun.get("start_session", False) is False
    assert begun["admit_turn s1"] is (session is None and attempts == 4)
