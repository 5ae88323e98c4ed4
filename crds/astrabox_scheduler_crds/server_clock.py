"""The wall clock that all processes share: the local one, held inside what the API server's answers prove.

Two hosts whose clocks differ would disagree about which due times are past. Every answer of the API
server carries a `Date` header of one second's resolution; together with the local monotonic times
at which the request was sent and the answer came, it bounds the server's time from both sides. A
local clock inside these bounds is used as it is; one outside is wrong, and the lower bound is taken in its
place: the server has surely come so far, so that nothing happens before it is due.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

DRIFT = 200e-6
"""Seconds per second by which bounds widen with age: twice what a bad quartz drifts."""
_RESOLUTION = 1.0


class ServerClock:
    """Aware UTC. The local clock before the first observation; safe to share by threads."""

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._wall = wall
        self.monotonic = monotonic
        # (lower, upper, taken): bounds of "server time minus monotonic time", and when they were set.
        # One tuple, replaced whole: a reader in another thread sees old or new, never half.
        self._bounds: tuple[float, float, float] | None = None

    def observe(self, date: datetime, sent: float, received: float) -> None:
        """Take in an answer: its `Date` and the monotonic seconds before the request and after the answer."""
        lower, upper = date.timestamp() - received, date.timestamp() + _RESOLUTION - sent
        old = self._widened(received)
        if old is not None:
            narrowed = max(lower, old[0]), min(upper, old[1])
            if narrowed[0] <= narrowed[1]:
                lower, upper = narrowed
            # else the server's clock was set, or another server answered: the newest answer counts
        self._bounds = (lower, upper, received)

    def now(self) -> datetime:
        """The time, aware UTC."""
        return datetime.fromtimestamp(self.timestamp(), UTC)

    def timestamp(self) -> float:
        """The time in seconds since the epoch."""
        wall, monotonic = self._wall(), self.monotonic()
        bounds = self._widened(monotonic)
        if bounds is None:
            return wall
        lower, upper = monotonic + bounds[0], monotonic + bounds[1]
        return wall if lower <= wall <= upper else lower

    def earliest(self, monotonic: float) -> datetime:
        """The earliest that it can have been at `monotonic` seconds of this process, aware UTC.

        By the local clock before the first observation.
        """
        bounds = self._widened(monotonic)
        lower = bounds[0] if bounds is not None else self._wall() - self.monotonic()
        return datetime.fromtimestamp(monotonic + lower, UTC)

    def skew(self) -> float:
        """Seconds by which the local clock was corrected; 0.0 while it is inside the bounds."""
        return self._wall() - self.timestamp()

    def _widened(self, monotonic: float) -> tuple[float, float] | None:
        if self._bounds is None:
            return None
        lower, upper, taken = self._bounds
        slack = max(0.0, monotonic - taken) * DRIFT
        return lower - slack, upper + slack
