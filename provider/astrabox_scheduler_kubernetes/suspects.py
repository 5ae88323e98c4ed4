"""Runs that have lost one process after another: any of them may be the one that takes processes down.

Whoever takes over the runs of a lost process cannot tell which of them killed it. If all were begun
together each time, one such run would use up the attempts of all that happen to be in progress beside it.
So the second half of the attempts of a run whose last one was lost is made one at a time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from astrabox_scheduler_crds.run import Phase, RunStatus
from astrabox_scheduler_crds.transitions import RetryPolicy


def is_suspect(status: RunStatus, policy: RetryPolicy) -> bool:
    """Whether the last attempt ended with its process, and half of the attempts are used up."""
    used = status.attempts - status.releases
    return status.phase == Phase.RUNNING and used > 0 and 2 * used >= policy.max_attempts


class Suspects:
    """One at a time in this process; the others wait in the order in which they came."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._turn = asyncio.Lock()
        self.waiting = 0
        """How many wait: they take no place of those that are carried out."""

    @asynccontextmanager
    async def turn(self, status: RunStatus) -> AsyncIterator[None]:
        """Wait until no other suspect is in progress; at once for a run that is none."""
        if not is_suspect(status, self._policy):
            yield
            return
        self.waiting += 1
        try:
            await self._turn.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._turn.release()
