"""The watch of runs: what shows that it works, pauses that grow while it does not, and what is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from astrabox_scheduler_client.errors import (
    ApiError,
    Forbidden,
    Gone,
    Unreachable,
)
from astrabox_scheduler_client.resource import Listing
from astrabox_scheduler_client.watch import RunEvent
from astrabox_scheduler_kubernetes.intake import Intake, Term
from astrabox_scheduler_kubernetes.telling import Told
from astrabox_scheduler_kubernetes.timing import Timing
from tests.unit.provider.memory_runs import World

TIMING = Timing(first_pause=0.001, longest_pause=0.002, recently=0.0)
TERM = Term("me", 0)
EVENT = RunEvent("BOOKMARK", "2")
AWAY = Unreachable("away")


class Watched:
    """Runs that can be listed; each watch does what is written for it, the last one goes on."""

    def __init__(self, *script: ApiError | list[RunEvent | ApiError]) -> None:
        self.script = list(script)
        self.lists = 0
        self.at_end = asyncio.Event()
        self.lasts = 0.0

    async def list_assigned(self, assignee: str) -> Listing[Any]:
        self.lists += 1
        return Listing([], "1")

    async def watch(self, *_: Any) -> AsyncIterator[RunEvent]:
        if not self.script:
            self.at_end.set()
            await asyncio.Event().wait()
        step = self.script.pop(0)
        await asyncio.sleep(self.lasts)
        for each in step if isinstance(step, list) else [step]:
            if isinstance(each, ApiError):
                raise each
            yield each


async def follow(watched: Watched, timing: Timing | None = None) -> None:
    intake = Intake(cast(Any, watched), timing or Timing(), lambda *_: None, lambda _: None, Told())
    task = asyncio.create_task(intake.follow(TERM))
    async with asyncio.timeout(5.0):
        await watched.at_end.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_watch_that_is_refused_is_tried_with_growing_pauses_and_told_once(
    lines: Callable[[], list[str]], pauses: list[float]
) -> None:
    """A list that works between says nothing of the watch."""
    watched = Watched(*[Forbidden("403")] * 8)
    await follow(watched)
    assert pauses == [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert watched.lists == 9
    (line,) = lines()
    assert line.startswith("WARNING runs cannot be watched, trying on: 403")


async def test_the_first_event_or_bookmark_shows_that_the_watch_works(
    lines: Callable[[], list[str]], pauses: list[float]
) -> None:
    await follow(Watched(AWAY, AWAY, [EVENT, AWAY], [EVENT]))
    assert pauses == [0.2, 0.4, 0.2]
    failing, again = "WARNING runs cannot be watched, trying on: away", "INFO runs can be watched again"
    assert lines() == [failing, again, failing, again]


async def test_a_watch_that_ends_at_once_without_an_event_is_a_failure(
    lines: Callable[[], list[str]], pauses: list[float]
) -> None:
    """As of a proxy that lets no stream through: each end is in order, and nothing comes."""
    watched = Watched([], [], [], [EVENT])
    await follow(watched)
    assert pauses == [0.2, 0.4, 0.8]
    assert lines() == [
        "WARNING runs cannot be watched, trying on: the watch of runs has ended at once",
        "INFO runs can be watched again",
    ]


async def test_an_event_that_brings_nothing_new_does_not_show_that_the_watch_works(
    lines: Callable[[], list[str]], pauses: list[float]
) -> None:
    old = RunEvent("BOOKMARK", "1")
    await follow(Watched([old], [old], [old, AWAY], [EVENT]))
    assert pauses == [0.2, 0.4, 0.8]
    assert len(lines()) == 2


async def test_a_version_that_is_too_old_at_each_try_is_a_failure_and_once_it_is_none(
    lines: Callable[[], list[str]], pauses: list[float]
) -> None:
    await follow(Watched([EVENT, Gone("old")], [EVENT, Gone("old")], [EVENT]))
    assert lines() == []
    await follow(Watched(*[Gone("old")] * 4))
    assert pauses == [0.2, 0.2, 0.2, 0.4, 0.8, 1.6]
    assert lines() == ["WARNING runs cannot be watched, trying on: old"]


async def test_a_watch_that_is_cut_after_a_while_is_begun_anew_at_once(
    lines: Callable[[], list[str]], pauses: list[float]
) -> None:
    """Without an event, as by a proxy that cuts what is silent: runs are to wait no longer for that."""
    watched = Watched(*[AWAY] * 4)
    watched.lasts = 0.05
    await follow(watched, Timing(first_pause=0.01, longest_pause=0.04))
    assert pauses == [0.01] * 4
    assert lines() == ["WARNING runs cannot be watched, trying on: away"]


async def test_a_watch_that_the_server_ends_in_time_is_well(lines: Callable[[], list[str]]) -> None:
    watched = Watched(AWAY, [], [], [])
    watched.lasts = 0.05
    await follow(watched, Timing(first_pause=0.01, longest_pause=0.04))
    assert watched.lists == 2
    assert lines()[1:] == ["INFO runs can be watched again"]


async def test_a_fault_of_ours_in_the_intake_neither_ends_it_nor_stays_unseen(
    lines: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("astrabox_scheduler_kubernetes.dispatcher._FAULT_PAUSE", 0.0)
    providers = SimpleNamespace(now=lambda _: SimpleNamespace(live=frozenset(), assignable=frozenset()))
    dispatcher = World().dispatcher(providers=providers)
    begun: list[Term] = []
    again = asyncio.Event()

    async def follow(term: Term) -> None:
        begun.append(term)
        if len(begun) == 1:
            raise KeyError("a fault")
        again.set()
        await asyncio.Event().wait()

    dispatcher._intake.follow = follow  # type: ignore[method-assign]
    dispatcher._heartbeat()
    async with asyncio.timeout(5.0):
        await again.wait()
    await dispatcher._end_intake()
    assert begun == [TERM, TERM]
    assert any("the intake loop failed and is begun again" in line for line in lines())
