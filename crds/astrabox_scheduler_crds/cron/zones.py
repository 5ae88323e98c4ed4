"""Time zones, read from the `tzdata` package only, and what a zone's clock shows.

The operating system's files are never read: two replicas, or two images, with the same package
compute the same due times. Minutes on the UTC line are counted since 1970-01-01T00:00Z.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib import import_module, resources
from typing import NamedTuple
from zoneinfo import ZoneInfo

from .errors import InvalidZone, ZoneDataMissing, quoted

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

_DAY = 24 * 60
_FIRST = (datetime.min.replace(tzinfo=UTC) - EPOCH) // MINUTE
_LAST = (datetime.max.replace(tzinfo=UTC) - EPOCH) // MINUTE
_BLOCK = 2**19  # minutes, about a year: what is computed and remembered in one go
_PROBE = 2**12  # minutes, 68 hours: no zone changes its clock twice in so short a time (a test proves it)
_LONGEST_TYPO = 64
_ALIKE = 0.8  # what is less alike is another place
_NOT_A_PLACE = {"Factory"}  # tzdata's mark of a machine that was never set up


class Span(NamedTuple):
    """A stretch of the UTC line, [start, end) in minutes, on which a zone's offset is constant."""

    start: int
    end: int
    offset: int
    """Minutes to add to UTC, rounded down: offsets had seconds until 1972, and the wall clock,
    rounded down to its minute, is UTC plus this."""


class Zone:
    """One zone's clock."""

    __slots__ = ("_info", "key")

    def __init__(self, key: str, info: ZoneInfo) -> None:
        self.key = key
        self._info = info

    def spans(self, minute: int) -> Iterator[Span]:
        """Yield the spans from the one that holds `minute` on, without end."""
        block = minute // _BLOCK
        while True:
            yield from (span for span in _spans(self, block) if span.end > minute)
            block += 1

    def high_water(self, minute: int) -> int:
        """Return the latest wall minute that the clock has shown up to and at a UTC minute.

        Where the clock was put back, this is more than what it shows. Two days back are enough:
        an offset is less than a day.
        """
        latest = minute - 2 * _DAY
        for start, end, offset in self.spans(minute - 2 * _DAY):
            if start > minute:
                break
            latest = max(latest, min(end - 1, minute) + offset)
        return latest

    def reached(self, wall_minute: int) -> int:
        """Return the first UTC minute at which the clock shows `wall_minute` or a later one."""
        return next(
            max(start, wall_minute - offset)
            for start, end, offset in self.spans(wall_minute - _DAY)
            if wall_minute - offset < end
        )

    def offset(self, minute: int) -> int:
        """Return the offset at a UTC minute; that of the nearest minute a datetime can hold."""
        minute = min(max(minute, _FIRST + _DAY), _LAST - _DAY)
        shift = (EPOCH + minute * MINUTE).astimezone(self._info).utcoffset()
        assert shift is not None
        return shift // MINUTE


@lru_cache(maxsize=4096)
def _spans(zone: Zone, block: int) -> tuple[Span, ...]:
    """Return the spans of one block. Its ends cut a span; that is no change of the clock."""
    start, end = block * _BLOCK, (block + 1) * _BLOCK
    spans, offset = [], zone.offset(start)
    for probe in range(start, end, _PROBE):
        after = zone.offset(probe + _PROBE - 1)
        if after != offset:
            change = _first_minute(zone, after, probe - 1, probe + _PROBE - 1)
            spans.append(Span(start, change, offset))
            start, offset = change, after
    return (*spans, Span(start, end, offset))


def _first_minute(zone: Zone, offset: int, before: int, after: int) -> int:
    """Return the first minute in (before, after] with the offset that holds at `after`."""
    while after - before > 1:
        middle = (before + after) // 2
        if zone.offset(middle) == offset:
            after = middle
        else:
            before = middle
    return after


@cache
def zone_keys() -> frozenset[str]:
    """Return every zone that is accepted: the IANA keys of the installed `tzdata` package.

    Raises ZoneDataMissing if the package cannot be read.
    """
    try:
        listed = resources.files("tzdata").joinpath("zones").read_text("ascii").split()
    except (ImportError, OSError) as error:
        raise ZoneDataMissing(
            "The zone list of the Python package tzdata cannot be read: install tzdata."
        ) from error
    return frozenset(listed) - _NOT_A_PLACE


def tzdata_version() -> str:
    """Return the IANA version of the installed zone data, such as "2026a"."""
    try:
        return str(import_module("tzdata").IANA_VERSION)
    except ImportError as error:
        raise ZoneDataMissing("The Python package tzdata is not installed: install tzdata.") from error


def check_zone_data() -> None:
    """Load one zone, so that a process without zone data ends at its start.

    Raises ZoneDataMissing, which says what to do.
    """
    try:
        load_zone("Europe/Zurich")
    except InvalidZone as error:
        raise ZoneDataMissing("Europe/Zurich cannot be loaded: install the Python package tzdata.") from error


def load_zone(key: str) -> Zone:
    """Return the zone of an IANA key; raises InvalidZone for any other text."""
    if key not in zone_keys():
        raise InvalidZone(f"The timezone {quoted(key)} is not known: use {_suggestion(key)}.")
    return _load(key)


@lru_cache(maxsize=256)  # a comparison with every zone takes milliseconds, and one typo is judged often
def _suggestion(key: str) -> str:
    lower, known = key.lower(), sorted(zone_keys())
    right = [each for each in known if each.lower() == lower]
    right = right or [each for each in known if each.rpartition("/")[2].lower() == lower.replace(" ", "_")]
    if not right and len(key) <= _LONGEST_TYPO:
        right = get_close_matches(key, known, 1, _ALIKE)
    return quoted(right[0]) if right else 'an IANA name such as "Europe/Zurich"'


@cache  # bounded by the keys that exist
def _load(key: str) -> Zone:
    try:
        with resources.files("tzdata").joinpath("zoneinfo", *key.split("/")).open("rb") as data:
            return Zone(key, ZoneInfo.from_file(data, key))
    except (OSError, ValueError) as error:
        raise InvalidZone(
            f"The timezone {quoted(key)} cannot be loaded from tzdata {tzdata_version()}: reinstall it."
        ) from error
