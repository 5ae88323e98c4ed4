"""The end of dispatch: what is in progress may end, what is left is handed over, all within a bound."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence

from astrabox_scheduler_client.errors import ApiError
from astrabox_scheduler_kubernetes.attempt import Attempt, Desk
from astrabox_scheduler_kubernetes.recorder import Dropped
from astrabox_scheduler_kubernetes.waiting import Entry, Waiting

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")
_AT_ONCE = 32

InProgress = MutableMapping[str, tuple[Attempt, asyncio.Task[None]]]


class Drain:
    """Ends the attempts in `in_progress` and empties `waiting`; `beat` keeps the Lease meanwhile.

    `is_open` tells of which runs it is not decided whether they are saved.
    """

    def __init__(
        self,
        in_progress: InProgress,
        waiting: Waiting,
        desk: Desk,
        beat: Callable[[], None],
        is_open: Callable[[str], bool],
    ) -> None:
        self._in_progress = in_progress
        self._waiting = waiting
        self._is_open = is_open
        self._desk = desk
        self._timing = desk.timing
        self._beat = beat

    async def run(self, grace: float) -> None:
        """Hand over what begins nothing any more, at once and as it comes; after `grace` seconds the rest.

        That is what waits for its time, its place or its turn, and what has come to the end of a call. A run
        of which it is not decided whether it is saved stays until it is: others would start it (G6).
        """
        beating = asyncio.create_task(self._keep_beating())
        try:
            late = await self._while_in_progress(grace)
            for attempt, task in self._in_progress.values():
                if not task.done():
                    _LOG.info("run %s has not ended in time: its call is cancelled", attempt.entry.name)
                    task.cancel()
            await self._wait(self._timing.cancelled)
            self._tell_who_stays()
            left = [attempt for attempt, _ in self._in_progress.values()]
            left += [*late, *self._attempts(self._waiting.drain())]
            self._in_progress.clear()
            if await self._hand_over(left, self._timing.hand_over):
                _LOG.warning("not all runs could be handed over: others find them by the Lease")
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)

    def cancel(self) -> None:
        """End what is still in progress, also where `run` was cut short or has not been reached."""
        for task in _tasks(self._in_progress):
            task.cancel()

    async def _while_in_progress(self, grace: float) -> Sequence[Attempt]:
        """What waited and could not be handed over so far: the API server is slow, or they are many."""
        loop = asyncio.get_running_loop()
        end = loop.time() + grace
        late: Sequence[Attempt] = ()
        while self._goes_on():
            if (left := end - loop.time()) <= 0:
                break
            await self._end_waits()
            ended = [attempt for attempt, task in self._in_progress.values() if task.done()]
            late = await self._hand_over(
                [*late, *ended, *self._attempts(self._decided())], min(left, self._timing.hand_over)
            )
            late = [attempt for attempt in late if not self._in_hand(attempt)]
            pause = min(max(end - loop.time(), 0.0), self._timing.beat)
            if self._undecided():
                await asyncio.sleep(pause)
            else:
                await self._wait(pause)
        return late

    def _goes_on(self) -> bool:
        """Whether something may yet end or be decided."""
        return any(not task.done() for task in _tasks(self._in_progress)) or self._undecided()

    def _undecided(self) -> bool:
        return any(map(self._is_open, self._waiting.names()))

    def _decided(self) -> Iterable[Entry]:
        """Take out what waits, but for that of which it is not decided whether it is saved."""
        for entry in self._waiting.drain():
            if self._is_open(entry.name):
                self._waiting.add(entry)
            else:
                yield entry

    async def _end_waits(self) -> None:
        """Cancel those that wait for their turn among suspects: they are at once done, and begin nothing."""
        waits = [task for attempt, task in self._in_progress.values() if attempt.waits and not task.done()]
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)

    def _in_hand(self, attempt: Attempt) -> bool:
        mine = self._in_progress.get(attempt.entry.name)
        return mine is not None and mine[0] is attempt

    async def _wait(self, seconds: float) -> None:
        tasks = [task for task in _tasks(self._in_progress) if not task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def _attempts(self, entries: Iterable[Entry]) -> list[Attempt]:
        return [Attempt(entry, self._desk) for entry in entries]

    def _tell_who_stays(self) -> None:
        for name, (_, task) in self._in_progress.items():
            if not task.done():
                _LOG.error("the handler call of run %s does not end though it was cancelled", name)

    async def _hand_over(self, attempts: Sequence[Attempt], seconds: float) -> Sequence[Attempt]:
        """Those that another try may hand over: the time was too short, or the API server away."""
        gate = asyncio.Semaphore(_AT_ONCE)
        left = {id(attempt): attempt for attempt in attempts}

        async def hand_over(attempt: Attempt) -> None:
            async with gate:
                try:
                    await attempt.hand_over()
                except (ApiError, Dropped) as error:
                    _LOG.warning("run %s is left to be found: %s", attempt.entry.name, error)
                    if isinstance(error, ApiError) and not error.permanent:
                        return
                del left[id(attempt)]
                # Not before: what is in hand is not taken in again by our own watch.
                if self._in_hand(attempt):
                    del self._in_progress[attempt.entry.name]

        try:
            async with asyncio.timeout(seconds):
                async with asyncio.TaskGroup() as group:
                    # First those that others would take for started though they never were.
                    for attempt in sorted(attempts, key=lambda each: not each.untouched):
                        group.create_task(hand_over(attempt))
        except TimeoutError:
            _LOG.debug("%d of %d runs are not handed over yet", len(left), len(attempts))
        return list(left.values())

    async def _keep_beating(self) -> None:
        while True:
            self._beat()
            await asyncio.sleep(self._timing.beat)


def _tasks(in_progress: Mapping[str, tuple[Attempt, asyncio.Task[None]]]) -> list[asyncio.Task[None]]:
    return [task for _, task in in_progress.values()]
