"""The wall clock: which minutes of the plain calendar an expression matches.

A wall minute is a count of minutes of local time since 1970-01-01T00:00 *local*, without any zone:
on this line each day has 24 hours.
"""

from functools import lru_cache
from threading import Lock

from croniter import CroniterError, croniter

from .errors import CronError

_DAY = 24 * 60
_CYCLE = 146_097 * _DAY  # 400 years: dates and weekdays of the Gregorian calendar repeat exactly


class _WallClock:
    """A croniter object for one normal expression, kept because building it costs as much as a step."""

    __slots__ = ("_cron", "_lock")

    def __init__(self, normal: str) -> None:
        self._cron = croniter(normal, start_time=0.0, ret_type=float)
        self._lock = Lock()  # croniter keeps its start in the object

    def next_match(self, minute: int) -> int:
        with self._lock:
            return int(self._cron.get_next(float, start_time=minute * 60.0, update_current=False)) // 60


_wall_clock = lru_cache(maxsize=8192)(_WallClock)


@lru_cache(maxsize=8192)
def next_wall_minute(normal: str, minute: int) -> int:
    """Return the first wall minute after `minute` that a normal expression matches.

    Remembered, because many schedules of one expression are due in the same minute. Raises
    CronError if the library finds none, which the checks of our grammar leave no room for.
    """
    cycles, rest = divmod(minute, _CYCLE)  # croniter never gets near the ends of datetime
    try:
        found = _wall_clock(normal).next_match(rest)
    except CroniterError as error:
        raise CronError(f"The expression {normal} has no date after this one.") from error
    return cycles * _CYCLE + found
