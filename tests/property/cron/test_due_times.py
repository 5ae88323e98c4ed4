"""The calculus equals a scan of every minute, around the changes of every zone's clock."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import example, given, reject
from hypothesis import strategies as st

from astrabox_scheduler_crds.cron import CronSchedule, InvalidCron, wall, zones
from tests.property.cron.expressions import changes_of_a_clock, expressions, instants
from tests.property.cron.expressions import zones as zone_keys
from tests.property.cron.oracle import MINUTE, Matcher, all_zones, changes, next_wall, scan

LIMIT = 200  # due times that are compared in one window

FIXED = ("0 2 * * *", "30 1,2,3 * * *", "15,45 0-4 * * *", "0 0 * * *", "59 23 * * *", "0-59/20 0-23 * * *")
REAL = ("*/13 * * * *", "0 */2 * * *", "*/20 0-3 * * *", "30 * * * 1-5")


def parsed(cron: str, zone: str) -> CronSchedule:
    try:
        return CronSchedule.parse(cron, zone)
    except InvalidCron as error:
        never = next_wall(cron, datetime(2096, 3, 1)) is None  # noqa: DTZ001
        if not never or error.field != "day of month":
            raise
        reject()


def equals_the_scan(cron: str, zone: str, start: datetime, end: datetime) -> None:
    expected = scan(cron, zone, start, end)
    found = list(islice(parsed(cron, zone).between(start, end), LIMIT))
    assert found == expected[:LIMIT], (cron, zone, start)
    assert len(expected) >= LIMIT or len(found) == len(expected)


@given(
    changes_of_a_clock(),
    st.lists(expressions(), min_size=1, max_size=4),
    st.integers(-22 * 60, 26 * 60),
    st.integers(1, 30),
)
@example(("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)), [*FIXED, *REAL], 60 * 26, 30)
@example(("Pacific/Kwajalein", datetime(1969, 9, 30, 13, tzinfo=UTC)), [*FIXED, *REAL], -60 * 12, 30)
@example(("Africa/Monrovia", datetime(1972, 1, 7, 0, 45, tzinfo=UTC)), [*FIXED, *REAL], 60, 26)
@example(("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)), [*FIXED, *REAL], 60, 26)
def test_equals_a_scan_around_any_change(
    change: tuple[str, datetime], crons: list[str], minutes_before: int, hours_after: int
) -> None:
    zone, instant = change
    start = instant - minutes_before * MINUTE
    end = start + timedelta(hours=hours_after)
    for cron in crons:
        equals_the_scan(cron, zone, start, end)


@pytest.mark.parametrize("part", range(10))
def test_equals_a_scan_in_every_zone(part: int, deep: bool) -> None:
    """A change of each zone, another one for each alias; all of them in the deep profile."""
    for number, zone in enumerate(all_zones()):
        if number % 10 != part or zone == "Factory":
            continue
        known = [change for change in changes(zone) if 1900 <= change.year < 2040]
        for change in known if deep else known[number % 7 :: 97]:
            start = change - timedelta(hours=3)
            for cron in (*FIXED, *REAL) if deep else (FIXED[number % 6], FIXED[0], REAL[number % 4]):
                equals_the_scan(cron, zone, start, start + timedelta(hours=8))


def test_no_clock_changes_twice_between_two_probes() -> None:
    """The spans of a zone are found by probing: its changes must lie further apart than two probes."""
    for zone in all_zones():
        for earlier, later in pairwise(changes(zone)):
            assert later - earlier > zones._PROBE * MINUTE, (zone, earlier)


@pytest.mark.parametrize("part", range(4))
def test_the_spans_of_a_zone_begin_where_its_file_says(part: int, deep: bool) -> None:
    for number, key in enumerate(all_zones()):
        if number % 4 != part or key == "Factory":
            continue
        for change in changes(key) if deep else changes(key)[number % 5 :: 31]:
            minute, zone = (change - zones.EPOCH) // MINUTE, zones.load_zone(key)
            before, after = islice(zone.spans(minute - 1), 2)
            assert (before.end, after.start) == (minute, minute), (key, change)
            assert before.offset != after.offset, (key, change)


@given(expressions(day_star=1), st.one_of(instants(1890, 2210), instants(1, 4), instants(9970, 9990)))
@example("0 0 29 2 *", datetime(2096, 3, 1, tzinfo=UTC))
@example("0 0 29 2 1", datetime(2096, 3, 1, tzinfo=UTC))
@example("0 0 30,31 2,4 *", datetime(2026, 1, 29, tzinfo=UTC))
@example("0 0 31 */3 *", datetime(2026, 4, 5, tzinfo=UTC))
@example("0 0 31 4 sun", datetime(2026, 4, 5, tzinfo=UTC))
def test_equals_a_calendar_where_the_clock_never_changes(cron: str, instant: datetime) -> None:
    """Sparse and dense expressions over years, which a scan of minutes cannot reach."""
    schedule = parsed(cron, "UTC")
    for _ in range(3):
        expected = next_wall(cron, instant.replace(tzinfo=None))
        assert expected is not None
        found = schedule.next_after(instant)
        assert found == expected.replace(tzinfo=UTC)
        instant = found


@given(expressions(), changes_of_a_clock(), st.timedeltas(timedelta(days=-3), timedelta(days=3)))
def test_a_due_time_is_later_a_whole_minute_and_the_next_one_for_all_between(
    cron: str, change: tuple[str, datetime], distance: timedelta
) -> None:
    zone, instant = change[0], change[1] + distance
    schedule = parsed(cron, zone)
    found = schedule.next_after(instant)
    assert found > instant
    assert found.tzinfo is UTC
    assert (found.second, found.microsecond) == (0, 0)
    between = instant + (found - instant) / 2
    assert schedule.next_after(between) == found
    assert schedule.next_after(found - timedelta(microseconds=1)) == found
    assert schedule.next_after(found) > found


@given(expressions(), changes_of_a_clock(), st.permutations(range(6)))
def test_no_result_depends_on_the_calls_before(
    cron: str, change: tuple[str, datetime], order: list[int]
) -> None:
    zone, instant = change
    shared = parsed(cron, zone)
    starts = [instant + timedelta(hours=7 * step - 20, seconds=step) for step in range(6)]
    asked = {index: shared.next_after(starts[index]) for index in order}
    for index, start in enumerate(starts):
        wall.next_wall_minute.cache_clear()
        wall._wall_clock.cache_clear()
        assert CronSchedule.parse(f" {cron}", zone).next_after(start) == asked[index]


@given(expressions(), changes_of_a_clock(), st.integers(0, 12))
def test_between_is_next_after_over_and_over(cron: str, change: tuple[str, datetime], count: int) -> None:
    zone, instant = change
    schedule = parsed(cron, zone)
    start = instant - timedelta(hours=2)
    expected, last = [], start
    for _ in range(count):
        last = schedule.next_after(last)
        expected.append(last)
    assert list(schedule.between(start, last)) == expected
    assert list(schedule.between(start, last - timedelta(microseconds=1))) == expected[:-1]


@given(expressions(), zone_keys, instants(1970, 2040))
def test_a_local_time_that_fires_exists_and_matches_or_follows_a_gap(
    cron: str, zone: str, instant: datetime
) -> None:
    """Away from changes the due time's wall clock shows what the fields say."""
    found = parsed(cron, zone).next_after(instant)
    if not any(abs(change - found) < timedelta(days=2) for change in changes(zone)):
        minute = found + zones.load_zone(zone).offset((found - zones.EPOCH) // MINUTE) * MINUTE
        assert Matcher(cron)(minute.replace(tzinfo=None))
