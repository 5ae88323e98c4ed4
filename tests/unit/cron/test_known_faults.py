"""Faults that cron libraries and schedulers had; the id of each opens the docstring of its test."""

import itertools
from datetime import timedelta

import pytest

from astrabox_scheduler_crds.cron import CronSchedule, InvalidCron
from astrabox_scheduler_crds.cron import calculus as calculus_module
from astrabox_scheduler_crds.cron import wall as wall_module
from tests.unit.cron.due import at, due, first, text_of

JANUARY = "2026-01-01T00:00Z"


def refused_field(cron: str) -> str:
    with pytest.raises(InvalidCron) as caught:
        CronSchedule.parse(cron, "UTC")
    return caught.value.field


def test_a_half_hour_change_loses_no_due_time() -> None:
    """CC-01 (V12): Lord Howe moves its clock by 30 minutes, and due times stay an exact set."""
    zone = "Australia/Lord_Howe"
    assert due("*/7 * * * *", zone, "2026-04-04T15:00Z", "2026-04-04T15:30Z") == [
        "2026-04-04T15:05Z",
        "2026-04-04T15:12Z",
        "2026-04-04T15:19Z",
        "2026-04-04T15:26Z",
        "2026-04-04T15:30Z",
    ]
    assert due("30 * * * *", zone, "2026-04-04T14:30Z", "2026-04-04T16:00Z") == [
        "2026-04-04T15:00Z",
        "2026-04-04T16:00Z",
    ]
    assert due("0 2 * * *", zone, "2026-10-03T00:00Z", "2026-10-04T20:00Z") == [
        "2026-10-03T15:30Z",
        "2026-10-04T15:00Z",
    ]


@pytest.mark.parametrize(
    ("zone", "start"), [("Europe/Zurich", "2023-10-29T00:00Z"), ("Europe/Berlin", "2026-10-25T00:00Z")]
)
def test_a_star_keeps_its_cadence_through_the_repeated_hour(zone: str, start: str) -> None:
    """CC-02 (V09): twelve runs in each pass, five real minutes between any two."""
    begin = at(start) - timedelta(minutes=5)
    runs = list(CronSchedule.parse("*/5 * * * *", zone).between(begin, begin + timedelta(hours=2)))
    assert len(runs) == 24
    assert {later - earlier for earlier, later in itertools.pairwise(runs)} == {timedelta(minutes=5)}


def test_once_per_local_day_or_month_over_a_change() -> None:
    """CC-04 (V19): the same local time before and after the clocks change."""
    assert due("0 6 * * *", "America/New_York", "2026-03-07T00:00Z", "2026-03-10T00:00Z") == [
        "2026-03-07T11:00Z",
        "2026-03-08T10:00Z",
        "2026-03-09T10:00Z",
    ]
    assert first(2, "0 0 1 * *", "Europe/Berlin", "2026-03-15T12:00Z") == [
        "2026-03-31T22:00Z",
        "2026-04-30T22:00Z",
    ]
    assert first(2, "0 8 * * 1", "Europe/Amsterdam", "2026-10-24T00:00Z") == [
        "2026-10-26T07:00Z",
        "2026-11-02T07:00Z",
    ]


@pytest.mark.parametrize(
    ("cron", "zone", "start", "expected"),
    [
        ("0 20 * * *", "Europe/Paris", "2026-10-24T22:00Z", "2026-10-25T19:00Z"),
        ("10 3 * * 0", "Europe/Prague", "2025-10-19T10:00Z", "2025-10-26T02:10Z"),
    ],
)
def test_a_step_does_not_depend_on_the_steps_before(cron: str, zone: str, start: str, expected: str) -> None:
    """CC-05: one object walked on, and a fresh one for each step, give the same list."""
    walked = first(10, cron, zone, start)
    assert walked[0] == expected
    fresh, instant = [], at(start)
    for _ in walked:
        wall_module._wall_clock.cache_clear()
        wall_module.next_wall_minute.cache_clear()
        calculus_module._parsed.cache_clear()
        instant = CronSchedule.parse(cron, zone).next_after(instant)
        fresh.append(text_of(instant))
    assert fresh == walked


def test_two_day_fields_are_a_union_even_with_a_step_on_a_star() -> None:
    """CC-07: only a bare star leaves the choice to the other field."""
    start = "2023-05-01T00:00Z"
    assert [run[5:10] for run in first(4, "0 16 */2 * SAT", "UTC", start)] == [
        "05-01",
        "05-03",
        "05-05",
        "05-06",
    ]
    assert [run[5:10] for run in first(4, "0 16 1,15 * SAT", "UTC", start)] == [
        "05-01",
        "05-06",
        "05-13",
        "05-15",
    ]


@pytest.mark.parametrize("cron", ["0 0 31 2 *", "0 0 30 2 *", "0 0 31 4,6,9,11 *", "0 0 30-31 feb *"])
def test_dates_that_never_come_are_refused(cron: str) -> None:
    """CC-09: and 29 February is not one of them."""
    assert refused_field(cron) == "day of month"
    assert first(1, "0 0 29 2 *", "UTC", JANUARY) == ["2028-02-29T00:00Z"]


@pytest.mark.parametrize(
    ("cron", "field"),
    [
        ("10 0 1-5 * 2#2", "day of week"),
        ("0 0 1-7 2 1#5", "day of week"),
        ("0 0 L * *", "day of month"),
        ("0 0 15W * *", "day of month"),
        ("0 0 ? * *", "day of month"),
        ("0 0 * * 5L", "day of week"),
    ],
)
def test_what_is_accepted_has_a_due_time(cron: str, field: str) -> None:
    """CC-10: the letters and signs of other crons are refused where they stand."""
    assert refused_field(cron) == field


@pytest.mark.parametrize(
    ("cron", "field"),
    [("0 1 0/10 * *", "day of month"), ("0 0 0 * *", "day of month"), ("0 0 1 0 *", "month")],
)
def test_days_and_months_begin_at_one(cron: str, field: str) -> None:
    """CC-11: 0 is refused, also as the start of a step."""
    assert refused_field(cron) == field


def test_a_wrapped_month_range_is_refused() -> None:
    """CC-13: what its writer wanted is written as a list."""
    assert refused_field("0 0 1 11-2/3 *") == "month"
    assert refused_field("0 0 1 nov-feb *") == "month"
    assert first(2, "0 0 1 11,2 *", "UTC", JANUARY) == ["2026-02-01T00:00Z", "2026-11-01T00:00Z"]


@pytest.mark.parametrize(
    ("cron", "field"),
    [
        ("0 8 * * FRI-MON", "day of week"),
        ("0 22-2 * * *", "hour"),
        ("50-10 * * * *", "minute"),
        ("0 0 28-3 * *", "day of month"),
        ("0 0 * * 7-1", "day of week"),
    ],
)
def test_wrapped_ranges_are_refused(cron: str, field: str) -> None:
    """CC-14: never accepted and then silent."""
    assert refused_field(cron) == field


@pytest.mark.parametrize(
    ("weekdays", "days"),
    [
        ("7", ["04", "11", "18"]),
        ("0", ["04", "11", "18"]),
        ("0,7", ["04", "11", "18"]),
        ("sun-sun", ["04", "11", "18"]),
        ("7-sun", ["04", "11", "18"]),
        ("6-7", ["03", "04", "10"]),
        ("sat-sun", ["03", "04", "10"]),
        ("5-7/2", ["02", "04", "09"]),
        ("fri-sun/2", ["02", "04", "09"]),
        ("1-7", ["02", "03", "04"]),
        ("0-7", ["02", "03", "04"]),
        ("mon-sun", ["02", "03", "04"]),
    ],
)
def test_sunday_is_0_and_7(weekdays: str, days: list[str]) -> None:
    """CC-15: one Sunday, by either number, in ranges too."""
    assert [run[8:10] for run in first(3, f"0 0 * * {weekdays}", "UTC", JANUARY)] == days


@pytest.mark.parametrize(
    ("cron", "days"),
    [
        ("0 9 * * 2/2", ["01", "03", "06", "08"]),
        ("0 9 * * 7/2", ["04", "11", "18", "25"]),
        ("0 9 25/3 * *", ["25", "28", "31", "25"]),
        ("0 9 * * tue/2", ["01", "03", "06", "08"]),
    ],
)
def test_a_step_after_a_value_runs_to_the_end_of_the_field(cron: str, days: list[str]) -> None:
    """CC-16: a/n is defined in every field; the last day of the week is 6."""
    assert [run[8:10] for run in first(4, cron, "UTC", JANUARY)] == days


@pytest.mark.parametrize(
    "cron", ["* * * * * *", "0 0 * * * 30", "30 * * * * * 2026", "@daily", "@hourly", "", " \t", "0 0 * *"]
)
def test_only_five_fields_are_an_expression(cron: str) -> None:
    """CC-17: no seconds, no years, no names."""
    assert refused_field(cron) == "expression"


@pytest.mark.parametrize("letter", ["R", "H", "r", "h", "R(0-29)", "H/15"])
def test_letters_that_draw_a_minute_are_refused(letter: str) -> None:
    """CC-17: each replica would draw another."""
    assert refused_field(f"{letter} * * * *") == "minute"


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("*/60 * * * *", ["00:00", "01:00"]),
        ("*/100 * * * *", ["00:00", "01:00"]),
        ("*/120 4-22 * * *", ["04:00", "05:00"]),
        ("30-40/90 4 * * *", ["04:30", "04:30"]),
        ("0 0/24 * * *", ["00:00", "00:00"]),
    ],
)
def test_a_step_larger_than_the_field_is_its_first_value(cron: str, expected: list[str]) -> None:
    """CC-18."""
    assert [run[11:16] for run in first(2, cron, "UTC", "2025-12-31T23:59Z")] == expected


def test_every_minute_of_every_second_hour_is_what_it_says() -> None:
    """CC-19: `* */2 * * *` is 720 runs a day, `0 */2 * * *` is 12."""
    day = ("2025-12-31T23:59Z", "2026-01-01T23:59Z")
    assert len(due("* */2 * * *", "UTC", *day)) == 720
    assert len(due("0 */2 * * *", "UTC", *day)) == 12


@pytest.mark.parametrize(
    ("cron", "start", "expected"),
    [
        ("0,30 * * * *", "2018-05-15T09:00:30Z", "2018-05-15T09:30Z"),
        ("0 12 * * *", "2026-01-01T11:59:59.999999Z", "2026-01-01T12:00Z"),
        ("0 12 * * *", "2026-01-01T12:00:00Z", "2026-01-02T12:00Z"),
        ("0 12 * * *", "2026-01-01T12:00:00.000001Z", "2026-01-02T12:00Z"),
        ("* * * * *", "2026-01-01T12:00:59.999999Z", "2026-01-01T12:01Z"),
    ],
)
def test_the_next_due_time_is_strictly_later(cron: str, start: str, expected: str) -> None:
    """CC-21: to the microsecond."""
    assert first(1, cron, "UTC", start) == [expected]


def test_a_leap_day_eight_years_away_is_found() -> None:
    """CC-22: 2100 is no leap year."""
    assert first(1, "0 0 29 2 *", "UTC", "2096-03-01T00:00Z") == ["2104-02-29T00:00Z"]
    assert first(2, "0 0 29 feb 1", "UTC", "2096-02-29T00:00Z") == ["2097-02-04T00:00Z", "2097-02-11T00:00Z"]


def test_a_result_never_equals_its_start_in_a_repeated_hour() -> None:
    """CC-24: half past each hour in Helsinki, second 03:45 local."""
    assert first(2, "30 * * * *", "Europe/Helsinki", "2017-10-29T01:45Z")[0] == "2017-10-29T02:30Z"
    assert first(2, "30 */1 * * *", "Europe/Helsinki", "2017-10-29T01:45Z") == [
        "2017-10-29T02:30Z",
        "2017-10-29T03:30Z",
    ]
    assert due("30 * * * *", "Europe/Helsinki", "2017-10-28T23:45Z", "2017-10-29T01:45Z") == [
        "2017-10-29T00:30Z",
        "2017-10-29T01:30Z",
    ]


def test_a_local_time_that_is_skipped_is_due_when_the_clock_has_jumped() -> None:
    """CC-25: the result is an instant whose local time exists."""
    assert first(1, "0 2 * * *", "America/New_York", "2026-03-08T06:30Z") == ["2026-03-08T07:00Z"]
