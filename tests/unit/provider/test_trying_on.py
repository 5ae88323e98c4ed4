"""What is tried until it works: pauses grow, and it is told when it fails and when it works again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from astrabox_scheduler_client.errors import (
    AccessDenied,
    ApiError,
    Conflict,
    Invalid,
    QuotaExceeded,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import Phase, RunStatus
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_crds.transitions import with_attempt
from astrabox_scheduler_kubernetes.attempt import Attempt
from astrabox_scheduler_kubernetes.intake import Term
from astrabox_scheduler_kubernetes.recorder import Dropped
from astrabox_scheduler_kubernetes.restore import Restorer
from astrabox_scheduler_kubernetes.spared import SecondLook, Spared
from astrabox_scheduler_kubernetes.store import Store
from astrabox_scheduler_kubernetes.telling import Trouble, said
from astrabox_scheduler_kubernetes.timing import Timing
from astrabox_scheduler_kubernetes.withdrawing import Unsaved
from astrabox_scheduler_kubernetes.writing import Trail
from tests.unit.provider.memory_runs import NOW, World
from tests.unit.provider.test_claims import claims_late

TIMING = Timing(first_pause=0.001, longest_pause=0.002, recently=0.0)
TERM = Term("me", 0)
REFUSED = AccessDenied('PATCH /r/status: HTTP 403 Forbidden: User "x" cannot patch')
AWAY = Unreachable("away")


async def test_a_state_that_cannot_be_saved_is_told_once_and_when_it_works_again(
    lines: Callable[[], list[str]],
) -> None:
    """A run that stays `Queued` because of a lacking right says so, and what grants the right."""
    world = World()
    world.runs.faults = [REFUSED, REFUSED, AWAY, REFUSED, AWAY]
    await world.attempt(world.run()).carry_out()
    failing = [line for line in lines() if "cannot be saved" in line]
    assert [line[:50] for line in failing] == ["WARNING the state of run r cannot be saved, trying"] * 2
    assert "403" in failing[0]
    assert "astrabox.serviceAccounts" in failing[0], "what to do"
    assert failing[1].endswith("trying on: away"), "another kind of error is told as well"
    assert lines().count("INFO the states of runs can be saved again") == 1
    assert world.status.phase == Phase.SUCCEEDED


async def test_another_run_that_is_saved_does_not_end_the_trouble_of_the_first(
    lines: Callable[[], list[str]],
) -> None:
    trouble = Trouble("run {} fails", "again")
    for _ in range(3):
        with trouble.of("a") as failed:
            failed(AWAY)
            for other in "bcd":
                with trouble.of(other) as fails:
                    fails(AWAY)
            failed(AWAY)
    assert lines() == ["WARNING run a fails, trying on: away", "INFO again"] * 3


async def test_what_is_given_up_leaves_nothing_that_silences_the_next(lines: Callable[[], list[str]]) -> None:
    trouble = Trouble("run {} fails", "again")
    with pytest.raises(Dropped), trouble.of("a") as failed:  # noqa: PT012 - it fails, then ends
        failed(AWAY)
        raise Dropped("deleted")
    with trouble.of("b"):
        pass
    with trouble.of("c") as failed:
        failed(AWAY)
    assert lines() == [
        *("WARNING run a fails, trying on: away", "INFO again"),
        *("WARNING run c fails, trying on: away", "INFO again"),
    ]


async def test_a_full_quota_is_no_lacking_right() -> None:
    assert said(QuotaExceeded("full")) == "full"


async def test_a_store_that_refuses_the_very_version_it_gives_is_not_asked_without_pause(
    lines: Callable[[], list[str]], pauses: list[float]
) -> None:
    """A webhook may answer 409 as well."""
    world = World()
    world.runs.faults = [Conflict("refused")] * 6
    await world.attempt(world.run()).carry_out()
    assert len(pauses) == 6
    assert [line for line in lines() if "refused" in line] == [
        "WARNING the state of run r cannot be saved, trying on: refused"
    ]


async def claimed_too_late() -> tuple[World, Attempt]:
    """An attempt whose Lease was lost while its claim was written: AstraBox was not called."""
    world = World()

    async def lapse() -> None:
        world.lapses = 1

    claims_late(world, lapse)
    attempt = world.attempt(world.run(scheduled=True, age=3.0))
    await attempt.carry_out()
    return world, attempt


async def test_a_claim_that_cannot_be_taken_back_is_told(
    lines: Callable[[], list[str]], pauses: list[float]
) -> None:
    world, attempt = await claimed_too_late()
    world.runs.faults = [AWAY, AWAY, Conflict("refused"), Conflict("refused")]
    await attempt.take_back()
    assert len(pauses) == 4
    assert [line for line in lines() if "taken back" in line] == [
        "WARNING the claim of run r cannot be taken back, trying on: away",
        "WARNING the claim of run r cannot be taken back, trying on: refused",
        "INFO run r was claimed and not started: the claim is taken back",
        "INFO claims of runs can be taken back again",
    ]


async def test_a_claim_that_is_given_up_is_not_told_as_taken_back(lines: Callable[[], list[str]]) -> None:
    world, attempt = await claimed_too_late()
    world.runs.faults = [AWAY, Invalid("422")]
    await attempt.take_back()
    assert [line for line in lines() if "taken back" in line] == [
        "WARNING the claim of run r cannot be taken back, trying on: away",
        "WARNING the claim of run r cannot be taken back: 422",
    ]


async def test_a_schedule_that_cannot_be_looked_at_after_the_claim_is_told(
    lines: Callable[[], list[str]],
) -> None:
    world = World()
    claims_late(world)
    world.look_faults = [AWAY] * 3
    await world.attempt(world.run(scheduled=True)).carry_out()
    assert [line for line in lines() if "look" in line] == [
        "WARNING the schedule of run r cannot be looked at, trying on: away",
        "INFO the schedules of runs can be looked at again",
    ]


async def test_a_run_that_waits_to_be_read_is_told_once(lines: Callable[[], list[str]]) -> None:
    world = World()
    run = world.run(scheduled=True, age=60.0)
    world.look_faults = [AWAY] * 3
    for _ in range(3):
        assert await world.attempt(run).carry_out() == world.clock.at
    assert lines() == ["WARNING run r waits, its state cannot be read: away"]
    assert world.log == []


async def test_a_sweep_is_told_when_it_works_again(lines: Callable[[], list[str]]) -> None:
    world = World()
    dispatcher = world.dispatcher()
    faults, done = [AWAY, AWAY, ServerError("500")], asyncio.Event()

    async def sweep() -> bool:
        dispatcher._sweep_now.set()
        if faults:
            raise faults.pop(0)
        done.set()
        await asyncio.sleep(0)
        dispatcher._sweep_now.clear()
        return True

    dispatcher._takeover.sweep = sweep  # type: ignore[method-assign]
    task = asyncio.create_task(dispatcher._sweeps())
    async with asyncio.timeout(5.0):
        await done.wait()
        while len(lines()) < 3:  # noqa: ASYNC110 - the line comes a turn later
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert lines() == [
        "WARNING unfinished runs cannot be looked through, trying on: away",
        "WARNING unfinished runs cannot be looked through, trying on: 500",
        "INFO unfinished runs can be looked through again",
    ]


async def test_a_sweep_that_fails_is_repeated_soon(pauses: list[float]) -> None:
    """G4: ten seconds until the next one are more than a takeover may take."""
    world = World()
    dispatcher = world.dispatcher()
    outcomes: list[ApiError | bool] = [AWAY, False, TooManyRequests("429", retry_after=2.0), True]
    done = asyncio.Event()

    async def sweep() -> bool:
        outcome = outcomes.pop(0)
        if not outcomes:
            done.set()
        if isinstance(outcome, ApiError):
            raise outcome
        return outcome

    dispatcher._takeover.sweep = sweep  # type: ignore[method-assign]
    task = asyncio.create_task(dispatcher._sweeps())
    async with asyncio.timeout(5.0):
        await done.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(pauses) == 3


@pytest.mark.parametrize(
    ("before", "after", "sweeps"),
    [
        ("me you", "me you", False),
        ("me", "me you", False),
        ("me you", "me", True),
        ("me you", "me -you", True),
        ("me -you", "me", True),
    ],
)
async def test_a_process_that_goes_is_looked_after_at_once(before: str, after: str, *, sweeps: bool) -> None:
    """G4: also one that ends while it stops (-), which is assigned nothing any more."""
    world, seen = World(), ""

    def now(_: float) -> Any:
        names = seen.split()
        assignable = frozenset(name for name in names if name[0] != "-")
        return SimpleNamespace(live=frozenset(name.lstrip("-") for name in names), assignable=assignable)

    world.holding = False
    dispatcher = world.dispatcher(providers=SimpleNamespace(now=now))
    seen = before
    dispatcher._heartbeat()
    dispatcher._sweep_now.clear()
    seen = after
    dispatcher._heartbeat()
    assert dispatcher._sweep_now.is_set() is sweeps


class Away:
    """A store that fails so often, and answers `then` to whatever is called after that."""

    def __init__(self, times: int, then: Exception | object) -> None:
        self._left = times
        self._then = then
        self.clock = ServerClock()
        self.runs = self.schedules = self

    @asynccontextmanager
    async def use(self) -> AsyncIterator[Any]:
        yield self

    async def get(self, _: str) -> Any:
        self._left -= 1
        if self._left >= 0:
            raise AWAY
        return self._then

    async def list(self) -> Any:
        return SimpleNamespace(items=[await self.get("")])


async def ended(name: str) -> None:
    tasks = [each for each in asyncio.all_tasks() if each.get_name().startswith(name)]
    assert tasks
    async with asyncio.timeout(5.0):
        await asyncio.gather(*tasks)


async def test_what_is_looked_after_in_the_background_is_told(lines: Callable[[], list[str]]) -> None:
    """A run that may be saved, a schedule's old state, the second look of a reconcile."""
    world = World()
    run = world.run()
    done = run.changed(status=with_attempt(RunStatus(), "me", NOW))
    unsaved = Unsaved(cast(Store, Away(3, done)), TIMING)
    with unsaved.undecided("r"):
        unsaved.withdraw(run)
    await ended("astrabox withdraw")
    assert lines()[1:4:2] == [
        "WARNING run r cannot be looked for and cancelled, trying on: away",
        "INFO runs can be looked for and cancelled again",
    ]
    before = len(lines())
    written = SimpleNamespace(metadata=ObjectMeta(name="d", resource_version="7"))
    restorer = Restorer(cast(Store, Away(3, written)), TIMING)
    restorer.begin("d", Trail())
    await ended("astrabox restore")
    assert lines()[before + 1 :: 2] == [
        "WARNING schedule d: the old state cannot be put back, trying on: away",
        "INFO the old states of schedules can be put back again",
    ]
    before = len(lines())
    look = SecondLook(cast(Store, Away(3, written)), TIMING)
    await look.begin({"other": Spared(None, "")})
    await ended("astrabox second look")
    assert lines()[before:] == [
        "WARNING schedules that a reconcile left alone cannot be looked at, trying on: away",
        "INFO they can be looked at again",
    ]
