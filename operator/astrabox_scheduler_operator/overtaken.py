"""Due times that a disable overtook before this operator fired them: another one may have."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from astrabox_scheduler_client.errors import ApiError, NotFound
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_operator.burst import Candidate
from astrabox_scheduler_operator.index import ScheduleIndex
from astrabox_scheduler_operator.run_creator import Created, RunCreator

AT_ONCE: Final = 16
MAX_READS: Final = 500
"""In one step; the rest is looked at in the next, behind what is to be fired."""
MAX_SECONDS: Final = 2.0
"""The same: what comes due meanwhile waits for it."""
_RETRY: Final = timedelta(seconds=5)
_LOG = logging.getLogger(__name__)


class Overtaken:
    """Settles them by the run of that name, which alone tells; `skip` is told those that have none."""

    def __init__(
        self,
        index: ScheduleIndex,
        creator: RunCreator,
        clock: ServerClock,
        skip: Callable[[Candidate], None],
    ) -> None:
        self._index = index
        self._creator = creator
        self._clock = clock
        self._skip = skip

    async def settle(self, candidates: Sequence[Candidate], now: datetime) -> None:
        """Look for a moment, and leave each schedule queued for what comes next of it."""
        waiting, begun = iter(candidates[:MAX_READS]), self._clock.monotonic()

        async def work() -> None:
            for candidate in waiting:
                await self._one(candidate, now)
                if self._clock.monotonic() - begun > MAX_SECONDS:
                    return

        async with asyncio.TaskGroup() as group:
            for _ in range(min(AT_ONCE, len(candidates))):
                group.create_task(work())
        for candidate in candidates:
            if self._is_current(candidate) and self._index.planned(candidate.entry) is None:
                self._index.requeue(candidate.entry)

    async def _one(self, candidate: Candidate, now: datetime) -> None:
        entry, due = candidate.entry, candidate.due
        try:
            fired = await self._creator.found(entry, due) is Created.THERE_ALREADY
        except NotFound:
            fired = False
        except ApiError as error:
            self._again(candidate, error, now)
            return
        if not self._is_current(candidate) or entry.next_due != due:
            return  # the watch brought a change meanwhile, which has queued it anew
        if fired:
            entry.settle_fired(due)
            self._index.touch(entry.name)
        else:
            self._skip(candidate)

    def _again(self, candidate: Candidate, error: ApiError, now: datetime) -> None:
        _LOG.debug("a run cannot be read: %s", error, extra={"schedule": candidate.entry.name})
        if self._is_current(candidate):
            self._index.postpone(candidate.entry, now + _RETRY)

    def _is_current(self, candidate: Candidate) -> bool:
        return self._index.get(candidate.entry.name) is candidate.entry
