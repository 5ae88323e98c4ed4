"""This operator's share: kept by its Lease, and left to the others while nothing gets through."""

import asyncio
import logging
from datetime import datetime
from typing import Final, Protocol

from astrabox_scheduler_client.errors import ApiError, Conflict, ConnectError, QuotaExceeded
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_operator.attendance import Sight
from astrabox_scheduler_operator.confirm_choice import Confirms
from astrabox_scheduler_operator.index import ScheduleIndex
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.patience import PAUSE_SECONDS, Patience
from astrabox_scheduler_operator.preflight import remedy
from astrabox_scheduler_operator.repeat import RETRY_SECONDS, shuffled

LOOK_SECONDS: Final = 1.0
TRY_AGAIN_SECONDS: Final = 10.0
"""After a pause in which nothing has become better."""
START_SECONDS: Final = 30.0
"""For the Lease of another term: connecting takes three answers, and each may be slow."""
_LOG = logging.getLogger(__name__)


class Keeper(Protocol):
    """The part of a LeaseKeeper that is needed."""

    async def start(self, timeout: float) -> None:  # noqa: ASYNC109 - as the LeaseKeeper has it
        """Take a Lease. Raises ApiError, ConnectError."""
        ...

    async def release(self) -> None:
        """Give it up. From the call on it is not held."""
        ...


class Firing(Protocol):
    """What the firing loop knows of its own success."""

    answered: float | None

    def stuck(self, now: datetime) -> bool:
        """Whether something of this operator's share is due and unanswered."""
        ...

    def wake(self) -> None:
        """Look at what is due."""
        ...


class Share:
    """`run` it once all schedules are known. Who sees no other live operator never leaves its share.

    Who has left it and sees none comes back at once, so that there is always one that tries.
    """

    def __init__(
        self,
        *,
        keeper: Keeper,
        attendance: Sight,
        firing: Firing,
        confirm: Confirms,
        index: ScheduleIndex,
        clock: ServerClock,
        metrics: Metrics,
    ) -> None:
        self._keeper = keeper
        self._attendance = attendance
        self._firing = firing
        self._confirm = confirm
        self._index = index
        self._clock = clock
        self._metrics = metrics
        self._patience, self._blindness = Patience(), Patience()
        self._try_at = 0.0
        self.stepped_down = False

    async def run(self) -> None:
        """Take the share, and look after it until cancelled. Raises ApiError if none can ever be taken."""
        await self._take()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Step down or come back, if it is time to."""
        now = self._clock.monotonic()
        if self.stepped_down:
            if await self._may_return(now):
                await self._return()
            return
        held = self._attendance.held()
        self._patience.look(now, held=held, stuck=self._firing.stuck(self._clock.now()))
        self._blindness.look(now, held=held, stuck=self._attendance.blind())
        if held and self._is_over(now):
            await self._step_down(now)

    def _is_over(self, now: float) -> bool:
        """Whether others have to take this share. Who sees nobody fires nothing, and has seen them before."""
        attendance, answered = self._attendance, self._firing.answered
        ago = None if answered is None else now - answered
        if self._patience.is_over(attendance.identity, attendance.operators(), ago):
            return True
        return self._blindness.is_over(attendance.identity, attendance.seen_last(), None)

    async def _take(self) -> None:
        """Try until there is a Lease. A process that ends instead is started later each time."""
        said: set[str] = set()
        while True:
            try:
                await self._keeper.start(START_SECONDS)
            except (ApiError, ConnectError) as error:
                if not _may_pass(error):
                    raise
                kind = type(error).__name__
                if kind not in said:
                    help_ = remedy(error) if isinstance(error, ApiError) else ""
                    _LOG.warning("no Lease can be taken, trying on: %s%s", error, help_)
                said.add(kind)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                break
        if said:
            _LOG.info("the Lease is taken", extra={"identity": self._attendance.identity})

    def _others(self) -> frozenset[str]:
        return self._attendance.operators() - {self._attendance.identity}

    async def _step_down(self, now: float) -> None:
        self.stepped_down, self._try_at = True, now + PAUSE_SECONDS
        self._metrics.step_downs.inc()
        others = self._others() or self._attendance.seen_last() - {self._attendance.identity}
        _LOG.warning(
            "stepping down: nothing that is due gets through, the other operators take this share",
            extra={"identity": self._attendance.identity, "operators": sorted(others)},
        )
        await self._keeper.release()

    async def _may_return(self, now: float) -> bool:
        """At once if nobody else is there, else after the pause and if a read is answered in time."""
        if not self._others():
            try:
                await self._attendance.refresh()  # that nobody is there is only believed after a fresh list
            except ApiError:
                return False
            return not self._others()
        if now < self._try_at:
            return False
        self._try_at = now + TRY_AGAIN_SECONDS
        return await self._answers_in_time()

    async def _answers_in_time(self) -> bool:
        """Whether a confirmation would be fresh enough to fire on."""
        names = [entry.name for entry in self._index]
        if not names:
            return True
        try:
            confirmed = await self._confirm.versions(shuffled(names)[:1])  # the first may be bad
        except ApiError:
            return False
        return confirmed.fresh(self._clock.monotonic())

    async def _return(self) -> None:
        try:
            await self._keeper.start(START_SECONDS)
        except (ApiError, ConnectError) as error:
            _LOG.info("no Lease can be taken, this operator stays down: %s", error)
            return
        self.stepped_down, self._patience, self._blindness = False, Patience(), Patience()
        _LOG.info("taking a share again", extra={"identity": self._attendance.identity})
        self._firing.wake()


def _may_pass(error: ApiError | ConnectError) -> bool:
    """Whether the same call may succeed later: it did not get through, or waits for somebody's remedy.

    A right is waited for at the start as well, and what the process connects by was good a moment ago.
    """
    if isinstance(error, ConnectError | Conflict | QuotaExceeded):
        return True
    return error.of_all or not error.permanent
