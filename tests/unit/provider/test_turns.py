"""Whose turn it is: a run that is tried again waits behind what was there before, not behind what comes."""

from __future__ import annotations

import asyncio

from astrabox_scheduler_kubernetes.intake import Term
from tests.unit.provider.memory_runs import World

TERM = Term("me", 0)


class Backlog(World):
    """One place, and in each call of the first runs a second passes and another run comes."""

    def __init__(self) -> None:
        super().__init__(first_delay=0.0)
        self.seconds = 100.0
        self.clock.monotonic = lambda: self.seconds
        self.to_come = list("bcdefg")
        self.started = ""
        self.done = asyncio.Event()
        self.during = self.another_comes
        self.queue = self.dispatcher()

    def comes(self, name: str) -> None:
        run = self.run()
        run = self.runs.put(run.changed(metadata=run.metadata.changed(name=name)))
        self.queue.take(run, TERM)

    async def another_comes(self, call: str) -> None:
        if call != "start_session":
            return
        self.started += self.seen[-1].run_id
        self.seconds += 1.0
        if self.to_come:
            self.comes(self.to_come.pop(0))
        else:
            self.done.set()
        if self.started == "a":
            raise OSError("busy")

    async def pump(self) -> None:
        pump = asyncio.create_task(self.queue._pump())
        try:
            async with asyncio.timeout(5.0):
                await self.done.wait()
        finally:
            tasks = [pump, *(task for _, task in self.queue._in_progress.values())]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_run_that_is_tried_again_has_its_turn_before_those_that_came_later() -> None:
    """G3: with a backlog that lasts, its next attempt would else be put off without bound."""
    world = Backlog()
    world.comes("a")
    await world.pump()
    assert world.started.startswith("abac"), world.started


async def test_a_run_that_the_sweep_has_found_waits_behind_what_was_there_before() -> None:
    """Of that one only the metadata is known."""
    world = Backlog()
    world.comes("a")
    world.seconds += 1.0
    world.queue.take_name(world.run().metadata, TERM)
    waiting = world.queue._waiting
    assert [getattr(waiting.pop_ready(at), "name", None) for at in (100.5, 100.5, 101.0)] == ["a", None, "r"]
