"""Due times: where the wall clock of an expression meets the clock of a zone.

The rule is that of classic (Vixie) cron, said without its special cases:

- an expression that follows real time is due in every UTC minute whose wall clock matches;
- any other is due once per matching wall minute: when the clock first shows that minute or, if it
  skips it, the first later one. Wall minutes that meet in one UTC minute are one due time.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache

from .errors import CronError, NoDueTime
from .grammar import parse_expression
from .wall import next_wall_minute
from .zones import EPOCH, MINUTE, Zone, load_zone


@dataclass(frozen=True, slots=True)
class CronSchedule:
    """A cron expression in a zone, made by `parse`.

    Immutable, hashable, safe to use from several threads, and equal to any other of the same text
    and zone. Results depend on the text, the zone and the given instant alone.
    """

    text: str
    """The expression as written, with single spaces between its fields."""
    zone: str
    """The IANA key of the zone."""
    _normal: str = field(compare=False, repr=False)
    _real_time: bool = field(compare=False, repr=False)
    _clock: Zone = field(compare=False, repr=False)

    @staticmethod
    def parse(text: str, zone: str) -> "CronSchedule":
        """Read an expression and a zone.

        Raises InvalidCron or InvalidZone, with the field named, for any text that is not accepted
        (and ZoneDataMissing where no zone data is installed, see `check_zone_data`).
        """
        return _parsed(text, zone)

    def __reduce__(self) -> tuple[object, ...]:
        return CronSchedule.parse, (self.text, self.zone)

    def next_after(self, instant: datetime) -> datetime:
        """Return the first due time strictly later than `instant`.

        `instant` is aware, in any zone; the result is aware, in UTC, a whole minute. Raises
        ValueError for a naive datetime, NoDueTime if the result would lie after the year 9999, and
        a plain CronError if a fault of the library below would have led to a loop.
        """
        minute = _minute_of(instant)
        due = self._next_real(minute) if self._real_time else self._next_local(minute)
        if due <= minute:  # a caller may loop on the result without a check of its own
            raise CronError("The search for the next due time does not advance.")
        try:
            return EPOCH + due * MINUTE
        except OverflowError as error:
            raise NoDueTime("The next due time lies after the year 9999.") from error

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """Return an iterator over the due times with start < due time <= end, ascending, in UTC.

        Both are aware, in any zone. Raises ValueError at once if one is naive. Each due time is
        computed when it is asked for.
        """
        _minute_of(start), _minute_of(end)
        return self._walk(start, end)

    def _walk(self, start: datetime, end: datetime) -> Iterator[datetime]:
        try:
            while (start := self.next_after(start)) <= end:
                yield start
        except NoDueTime:
            return

    def _next_local(self, minute: int) -> int:
        """Once per wall minute: what the clock has shown, up to its highest, is done."""
        return self._clock.reached(next_wall_minute(self._normal, self._clock.high_water(minute)))

    def _next_real(self, minute: int) -> int:
        """Every minute that matches: search each span of the zone on its own."""
        searched_from, match = 0, -1  # match is the first one from searched_from on
        for start, end, offset in self._clock.spans(minute + 1):
            first = max(start, minute + 1) + offset
            if not searched_from <= first <= match:
                searched_from, match = first, next_wall_minute(self._normal, first - 1)
            if match - offset < end:
                return match - offset
        raise AssertionError("the spans of a zone have no end")


@lru_cache(maxsize=16384)
def _parsed(text: str, zone: str) -> CronSchedule:
    expression = parse_expression(text)
    clock = load_zone(zone)
    return CronSchedule(expression.text, zone, expression.normal, expression.real_time, clock)


def _minute_of(instant: datetime) -> int:
    """Return the UTC minute that holds an aware datetime."""
    if instant.utcoffset() is None:
        raise ValueError("A naive datetime names no instant: give it a tzinfo.")
    return (instant - EPOCH) // MINUTE
