"""Due times by brute force: every minute of the UTC line is looked at, one after the other.

Written apart from the implementation, with the standard library alone: no croniter, no arithmetic
with offsets, its own reading of the fields. Slow on purpose.
"""

import struct
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import cache, lru_cache
from importlib import resources
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
LOOK_BACK = timedelta(hours=26)  # no clock was ever put back by more than a day

MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NAMES: list[dict[str, int]] = [
    {},
    {},
    {},
    {name: number for number, name in enumerate(MONTHS, 1)},
    {name: number for number, name in enumerate(WEEKDAYS)},
]
LIMITS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]


def zone_file(key: str) -> bytes:
    return resources.files("tzdata").joinpath("zoneinfo", *key.split("/")).read_bytes()


@cache
def zone_info(key: str) -> ZoneInfo:
    with resources.files("tzdata").joinpath("zoneinfo", *key.split("/")).open("rb") as data:
        return ZoneInfo.from_file(data, key)


@cache
def all_zones() -> tuple[str, ...]:
    return tuple(sorted(resources.files("tzdata").joinpath("zones").read_text().split()))


@cache
def allowed(position: int, text: str) -> frozenset[int]:
    """The values one field allows."""
    low, high = LIMITS[position]

    def number(word: str) -> int:
        return NAMES[position].get(word.lower()) if word.isalpha() else int(word)  # type: ignore[return-value]

    values: set[int] = set()
    for part in text.split(","):
        body, _, step = part.partition("/")
        if body == "*":
            begin, end = low, high
        elif "-" in body:
            begin, end = (number(word) for word in body.split("-"))
            if end == 0 and begin > 0 and body.lower().endswith("sun"):
                end = 7
        else:
            begin = number(body)
            end = max(begin, high) if step else begin
        values.update(value for value in range(begin, end + 1) if (value - begin) % int(step or 1) == 0)
    return frozenset(value % 7 for value in values) if position == 4 else frozenset(values)


class Matcher:
    """Says of a wall clock, minute by minute, whether an expression matches."""

    def __init__(self, cron: str) -> None:
        minute, hour, dom, month, dow = cron.split()
        self.minutes, self.hours = allowed(0, minute), allowed(1, hour)
        self.days, self.months, self.weekdays = allowed(2, dom), allowed(3, month), allowed(4, dow)
        self.union = dom != "*" and dow != "*"
        self.real_time = minute[0] == "*" or hour[0] == "*"

    def day(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return (in_month or in_week) if self.union else (in_month and in_week)

    def __call__(self, wall: datetime) -> bool:
        return wall.minute in self.minutes and wall.hour in self.hours and self.day(wall)


def next_wall(cron: str, after: datetime) -> datetime | None:
    """The first matching minute of a plain calendar, day by day; None if there is none in 9 years."""
    matches = Matcher(cron)
    for days in range(9 * 366):
        day = after.date() + timedelta(days=days)
        if matches.day(day):
            for each_hour in sorted(matches.hours):
                for each_minute in sorted(matches.minutes):
                    found = datetime(day.year, day.month, day.day, each_hour, each_minute)  # noqa: DTZ001
                    if found > after:
                        return found
    return None


@lru_cache(maxsize=4)
def wall_clock(zone: str, start: datetime, end: datetime) -> tuple[tuple[datetime, datetime], ...]:
    """Each UTC minute in (start - look back, end] and what the clock shows then, without seconds."""
    info, instant, shown = zone_info(zone), start - LOOK_BACK, []
    while instant <= end:
        shown.append((instant, instant.astimezone(info).replace(second=0, tzinfo=None, fold=0)))
        instant += MINUTE
    return tuple(shown)


def scan(cron: str, zone: str, start: datetime, end: datetime) -> list[datetime]:
    """Every due time in (start, end], both whole UTC minutes."""
    clock = wall_clock(zone, start, end)
    matches = Matcher(cron)
    if matches.real_time:
        return [instant for instant, wall in clock if instant > start and matches(wall)]
    return [instant for instant in _once_per_local_time(matches, clock) if instant > start]


def _once_per_local_time(matches: Matcher, clock: Sequence[tuple[datetime, datetime]]) -> Iterator[datetime]:
    """A local minute fires when it is first shown; one that is skipped, at the first minute after the gap."""
    fired: set[datetime] = set()
    previous = clock[0][1] - MINUTE
    for instant, wall in clock:
        local = min(previous + MINUTE, wall)  # earlier than what is shown: skipped
        reached = set()
        while local <= wall:
            if matches(local):
                reached.add(local)
            local += MINUTE
        if reached - fired:
            yield instant
        fired |= reached
        previous = wall


def written_changes(key: str) -> list[int]:
    """The seconds (UTC, since 1970) of the changes that a zone's file lists, read from its bytes.

    RFC 8536: a block with 32-bit times comes first, then a header and a block with 64-bit ones.
    """
    data = zone_file(key)
    header = struct.Struct(">4s16x6l")
    _, utc, standard, leaps, times, types, characters = header.unpack_from(data)
    second = header.size + times * 5 + types * 6 + characters + leaps * 8 + standard + utc
    times = header.unpack_from(data, second)[4]
    return list(struct.unpack_from(f">{times}q", data, second + header.size))


@cache
def changes(key: str) -> tuple[datetime, ...]:
    """The first whole UTC minute of each change of a zone's clock up to 2040, as far as it is seen.

    Listed changes first; then the rule at the end of the file, with two a year, is sampled every 20 days.
    """
    info, epoch = zone_info(key), datetime(1970, 1, 1, tzinfo=UTC)

    def shown(instant: datetime) -> int:
        return (instant.astimezone(info).utcoffset() or timedelta()) // MINUTE

    found = []
    listed = written_changes(key)
    for second in listed:
        instant = epoch + timedelta(seconds=second + -second % 60)
        if instant.year > 1 and shown(instant - MINUTE) != shown(instant):
            found.append(instant)
    sample = max(epoch, epoch + timedelta(seconds=max(listed, default=0) // 60 * 60 + 60))
    while sample.year < 2040:
        later = sample + timedelta(days=20)
        if shown(sample) != shown(later):
            while later - sample > MINUTE:
                middle = sample + (later - sample) // 2 // MINUTE * MINUTE
                sample, later = (middle, later) if shown(middle) == shown(sample) else (sample, middle)
            found.append(later)
        sample = later
    return tuple(found)
