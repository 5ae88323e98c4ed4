"""Runs that have lost one process after another: any of them may be the one that takes processes down.

Whoever takes over the runs of a lost process cannot tell which of them killed it. If all were begun
together each time, one such run would use up the attempts of all that happen to be in progress beside it.
So a run that has lost half of its attempts with their processes, and two at least, is from then on begun
only when no other such run is on trial. A trial is short, so that many of them are soon under way again;
but a last attempt is on trial until it ends, so that no run fails for good by what another has done.

A run that takes its process down in every attempt so fails alone, if `max_attempts` is 3 at least: with
exactly 3, runs that have lost two processes go one after the other, each to its end. With 1 or 2 no attempt
is left in which that could be found out: nobody waits, and whatever was in progress beside it in every
attempt fails with it.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from astrabox_scheduler_crds.run import RunStatus
from astrabox_scheduler_crds.transitions import RetryPolicy

TRIAL_SECONDS = 10.0
"""Who kills its process does so within this time of the call, as a rule."""
_FEWEST_LOSSES = 2
"""One lost process says nothing: hosts are killed and machines fail."""


def is_suspect(status: RunStatus, policy: RetryPolicy) -> bool:
    """Whether the run, which nobody has in hand, has lost half of its attempts with their processes."""
    return status.losses >= max(_FEWEST_LOSSES, policy.max_attempts / 2)


class Trial:
    """That of one attempt: its time counts from the moment at which AstraBox is called."""

    def __init__(self, end: Callable[[], None], seconds: float | None) -> None:
        """`end` lets the next one begin. `seconds` it lasts; None: until the attempt is over."""
        self._end: Callable[[], None] | None = end
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None

    def called(self) -> None:
        """AstraBox is called: from now on the process may be taken down."""
        if self._seconds is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._seconds, self.over)

    def answered(self) -> None:
        """AstraBox has answered, and the answer is saved."""
        if self._seconds is not None:
            self.over()

    def over(self) -> None:
        """It has ended: at the latest with the attempt."""
        if self._timer is not None:
            self._timer.cancel()
        end, self._end = self._end, None
        if end is not None:
            end()


class Suspects:
    """One on trial at a time in this process; the others wait in the order in which they came."""

    def __init__(self, policy: RetryPolicy, trial: float = TRIAL_SECONDS) -> None:
        self._policy = policy
        self._trial = trial
        self._taken = False
        self._queue: deque[asyncio.Future[None]] = deque()
        self.has_place: Callable[[], bool] = lambda: True
        """Whether one more run may be in progress: one that has waited had given its place away."""

    @property
    def waiting(self) -> int:
        """How many wait: they take no place of those that are carried out."""
        return len(self._queue)

    @asynccontextmanager
    async def turn(self, status: RunStatus) -> AsyncIterator[Trial]:
        """Wait until no other suspect is on trial; at once for a run that is none."""
        if not is_suspect(status, self._policy):
            yield Trial(_nothing, None)
            return
        await self._take()
        last = self._policy.exhausted(status.changed(attempts=status.attempts + 1))
        trial = Trial(self._free, None if last else self._trial)
        try:
            yield trial
        finally:
            trial.over()

    def go_on(self) -> None:
        """Let the next one begin, if it can: to be called when a place may have become free."""
        while self._queue and not self._taken and self.has_place():
            waiter = self._queue.popleft()
            if not waiter.cancelled():
                self._taken = True
                waiter.set_result(None)

    async def _take(self) -> None:
        if not self._taken and not self._queue:
            self._taken = True
            return
        waiter = asyncio.get_running_loop().create_future()
        self._queue.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if not waiter.cancelled():
                self._free()  # its turn had just come
            elif waiter in self._queue:
                self._queue.remove(waiter)
            raise

    def _free(self) -> None:
        self._taken = False
        self.go_on()


def _nothing() -> None:
    pass
