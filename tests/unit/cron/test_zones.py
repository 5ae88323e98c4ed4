"""Zones, and what their clocks do to due times; fault ids open the docstrings."""

import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from astrabox_scheduler_crds.cron import (
    CronSchedule,
    InvalidZone,
    ZoneDataMissing,
    check_zone_data,
    tzdata_version,
    zones,
)
from tests.unit.cron.due import due, first


def test_a_repeated_local_time_is_due_once() -> None:
    """TZ-01: the first pass; a name made of the UTC time would not have removed the second."""
    assert due("0 2 * * *", "Europe/Berlin", "2026-10-24T12:00Z", "2026-10-25T12:00Z") == [
        "2026-10-25T00:00Z"
    ]


@pytest.mark.parametrize("start", ["00:30", "00:59", "01:00", "01:10", "01:30", "01:59"])
def test_a_search_that_starts_in_the_second_pass_neither_goes_back_nor_fires_again(start: str) -> None:
    """TZ-01: at 01:10Z Berlin shows 02:10 for the second time; its 02:30 was at 00:30Z."""
    assert first(2, "30 2 * * *", "Europe/Berlin", f"2026-10-25T{start}Z") == [
        "2026-10-26T01:30Z",
        "2026-10-27T01:30Z",
    ]


@pytest.mark.parametrize(
    ("zone", "start", "expected"),
    [
        ("America/New_York", "2026-03-07T12:00Z", "2026-03-08T07:00Z"),
        ("Europe/Berlin", "2026-03-28T12:00Z", "2026-03-29T01:00Z"),
    ],
)
def test_a_skipped_local_time_is_due_once_at_the_end_of_the_gap(zone: str, start: str, expected: str) -> None:
    """TZ-02 (V04)."""
    assert first(1, "30 2 * * *", zone, start) == [expected]


def test_skipped_times_and_the_first_time_after_the_gap_are_one_run() -> None:
    """TZ-02: 02:00, 02:30 and 03:00 meet at 07:00Z."""
    assert due("0,30 2-3 * * *", "America/New_York", "2026-03-08T06:59Z", "2026-03-08T07:30Z") == [
        "2026-03-08T07:00Z",
        "2026-03-08T07:30Z",
    ]


@pytest.mark.parametrize(
    ("zone", "start", "end", "expected"),
    [
        ("Africa/Cairo", "2026-04-23T12:00Z", "2026-04-24T12:00Z", ["2026-04-23T22:00Z"]),
        ("Asia/Beirut", "2026-03-28T12:00Z", "2026-03-29T12:00Z", ["2026-03-28T22:00Z"]),
        (
            "America/Havana",
            "2026-03-07T12:00Z",
            "2026-03-09T12:00Z",
            ["2026-03-08T05:00Z", "2026-03-09T04:00Z"],
        ),
    ],
)
def test_a_midnight_that_is_skipped_is_due_at_one(
    zone: str, start: str, end: str, expected: list[str]
) -> None:
    """TZ-04 (V31): one run, and the day is not lost."""
    assert due("0 0 * * *", zone, start, end) == expected


def test_a_star_invents_no_run_where_midnight_is_skipped() -> None:
    """TZ-04: the even hours of that day in Cairo."""
    assert first(3, "0 */2 * * *", "Africa/Cairo", "2026-04-23T20:00Z") == [
        "2026-04-23T23:00Z",
        "2026-04-24T01:00Z",
        "2026-04-24T03:00Z",
    ]


def test_a_skipped_day_is_due_once_at_its_end() -> None:
    """TZ-04: Samoa had no 30 December 2011; fixed times of that day meet, stars leave it out."""
    window = ("Pacific/Apia", "2011-12-29T12:00Z", "2011-12-31T12:00Z")
    assert due("0 9,17 * * *", *window) == [
        "2011-12-29T19:00Z",
        "2011-12-30T03:00Z",
        "2011-12-30T10:00Z",
        "2011-12-30T19:00Z",
        "2011-12-31T03:00Z",
    ]
    assert due("0 */12 30 * *", *window) == []
    assert due("15 9 21 8 *", "Pacific/Kwajalein", "1993-08-19T00:00Z", "1993-08-24T00:00Z") == [
        "1993-08-21T12:00Z"
    ]


def test_a_day_that_comes_twice_is_due_once() -> None:
    """TZ-01: Kwajalein put its clock back by 23 hours in 1969."""
    assert due("0 12 30 9 *", "Pacific/Kwajalein", "1969-09-29T00:00Z", "1969-10-03T00:00Z") == [
        "1969-09-30T01:00Z"
    ]
    for second_pass in ("1969-09-30T13:30Z", "1969-09-30T20:00Z", "1969-10-01T00:00Z", "1969-10-01T11:00Z"):
        assert first(1, "0 12 30 9 *", "Pacific/Kwajalein", second_pass) == ["1970-10-01T00:00Z"]
    assert due("0 */12 30 9 *", "Pacific/Kwajalein", "1969-09-29T00:00Z", "1969-10-03T00:00Z") == [
        "1969-09-29T13:00Z",
        "1969-09-30T01:00Z",
        "1969-10-01T00:00Z",
    ]


def test_offsets_with_seconds_are_due_in_whole_utc_minutes() -> None:
    """TZ-04: Monrovia was 44 minutes and 30 seconds behind until 1972-01-07."""
    window = ("Africa/Monrovia", "1972-01-06T00:00Z", "1972-01-07T23:00Z")
    assert due("0 12 * * *", *window) == ["1972-01-06T12:45Z", "1972-01-07T12:00Z"]
    assert due("30 0 * * *", *window) == ["1972-01-06T01:15Z", "1972-01-07T00:45Z"]
    assert due("*/30 0 * * *", *window) == ["1972-01-06T00:45Z", "1972-01-06T01:15Z"]


@pytest.mark.parametrize(
    "zone", ["CET", "EST", "MET", "US/Eastern", "Europe/Kiev", "UTC", "Etc/GMT-14", "GB"]
)
def test_aliases_are_zones(zone: str) -> None:
    """TZ-06: whatever the distribution of the image packs separately."""
    assert CronSchedule.parse("0 0 * * *", zone).zone == zone


def test_every_key_of_the_package_loads() -> None:
    """TZ-06."""
    assert len(zones.zone_keys()) > 500
    for key in zones.zone_keys():
        assert zones.load_zone(key).key == key


def test_a_process_without_zone_data_ends_at_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """TZ-07."""
    check_zone_data()
    monkeypatch.setitem(sys.modules, "tzdata", None)
    zones.zone_keys.cache_clear()
    try:
        with pytest.raises(ZoneDataMissing, match="install tzdata"):
            check_zone_data()
        with pytest.raises(ZoneDataMissing, match="install tzdata"):
            tzdata_version()
    finally:
        zones.zone_keys.cache_clear()


@pytest.mark.parametrize("damage", [b"", b"TZif", b"not a zone at all"])
def test_a_damaged_zone_file_is_an_invalid_zone(
    damage: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TZ-07: the check at start says it as well."""
    (tmp_path / "zoneinfo" / "Europe").mkdir(parents=True)
    (tmp_path / "zoneinfo" / "Europe" / "Zurich").write_bytes(damage)
    check_zone_data()
    monkeypatch.setattr(resources, "files", lambda package: tmp_path)
    zones._load.cache_clear()
    try:
        with pytest.raises(InvalidZone, match="reinstall"):
            zones.load_zone("Europe/Zurich")
        with pytest.raises(ZoneDataMissing, match="install"):
            check_zone_data()
    finally:
        zones._load.cache_clear()


def test_an_unknown_zone_harms_no_other_schedule() -> None:
    """TZ-08."""
    with pytest.raises(InvalidZone) as caught:
        CronSchedule.parse("0 9 * * *", "Mars/Olympus")
    assert caught.value.field == "timezone"
    assert first(1, "0 9 * * *", "Europe/Zurich", "2026-01-01T00:00Z") == ["2026-01-01T08:00Z"]


@pytest.mark.parametrize(
    ("zone", "right"), [("europe/berlin", "Europe/Berlin"), ("utc", "UTC"), ("EUROPE/KIEV", "Kiev")]
)
def test_zone_names_are_case_sensitive(zone: str, right: str) -> None:
    """TZ-09: and the message offers the right spelling."""
    with pytest.raises(InvalidZone, match=right):
        CronSchedule.parse("0 9 * * *", zone)


@pytest.mark.parametrize(
    ("zone", "meant"),
    [
        ("Europe/Berln", "Europe/Berlin"),
        ("Berlin", "Europe/Berlin"),
        ("new york", "America/New_York"),
        ("America/New York", "America/New_York"),
        ("right/Europe/Paris", "Europe/Paris"),
        ("Mars/Olympus", "an IANA name"),
        ("+01:00", "an IANA name"),
        ("Europe/Berlin" * 100, "an IANA name"),
    ],
    ids=lambda text: text[:20],
)
def test_the_closest_zone_is_offered(zone: str, meant: str) -> None:
    with pytest.raises(InvalidZone, match=f'use "?{meant}'):
        CronSchedule.parse("0 9 * * *", zone)


@pytest.mark.parametrize(
    "cron",
    [
        "CRON_TZ=Etc/UTC */20 * * * *",
        "TZ=Europe/Berlin 0 9 * * *",
        " TZ=Europe/Berlin\t0 9 * * *",
        "TZ=UTC 0 0 * *",
    ],
)
def test_a_zone_inside_the_expression_is_refused(cron: str) -> None:
    """TZ-10: and the message sends its writer to the field of the zone, whichever side it is written on."""
    with pytest.raises(ValueError, match="timezone or timeZone") as caught:
        CronSchedule.parse(cron, "UTC")
    assert getattr(caught.value, "field", None) == "timezone"


PROGRAM = """
import sys, zoneinfo
from datetime import datetime
from astrabox_scheduler_crds.cron import CronSchedule
start, end = map(datetime.fromisoformat, ("2026-03-26T00:00Z", "2026-04-11T00:00Z"))
for zone in "UTC", "Europe/Berlin", "America/Los_Angeles":
    print(*(due.isoformat() for due in CronSchedule.parse("0 12 * * 5", zone).between(start, end)))
print(len(zoneinfo.TZPATH), file=sys.stderr)
"""


def test_results_depend_neither_on_the_process_zone_nor_on_the_zone_files_of_the_system(
    tmp_path: Path,
) -> None:
    """TZ-12, TZ-15: TZ set, no system files at all, and system files that lie."""
    package = resources.files("tzdata").joinpath("zoneinfo")
    (tmp_path / "Europe").mkdir()
    (tmp_path / "Europe" / "Berlin").write_bytes(package.joinpath("Asia", "Tokyo").read_bytes())
    settings = [
        {"TZ": "America/Los_Angeles", "PYTHONTZPATH": ""},
        {"TZ": "Asia/Tokyo", "PYTHONTZPATH": str(tmp_path)},
    ]
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, **setting},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for setting in settings
    ]
    results = [program.communicate(timeout=30) for program in programs]
    assert [errors.strip() for _, errors in results] == ["0", "1"]
    assert [output.splitlines() for output, _ in results] == [
        [
            "2026-03-27T12:00:00+00:00 2026-04-03T12:00:00+00:00 2026-04-10T12:00:00+00:00",
            "2026-03-27T11:00:00+00:00 2026-04-03T10:00:00+00:00 2026-04-10T10:00:00+00:00",
            "2026-03-27T19:00:00+00:00 2026-04-03T19:00:00+00:00 2026-04-10T19:00:00+00:00",
        ]
    ] * 2


@pytest.mark.parametrize(
    "zone",
    [
        "",
        " ",
        " UTC",
        "UTC\n",
        "America",
        "Europe",
        "America/Argentina",
        "Europe/",
        "/Europe/Berlin",
        "Europe//Berlin",
        "Europe/./Berlin",
        "../../etc/passwd",
        "/etc/localtime",
        "Europe/Berlin\0",
        "\0",
        "\ud800",
        "x" * 300,
        "Europe/" * 50_000,
        "localtime",
        "Factory",
        "posixrules",
        "posix/Europe/Berlin",
        "right/Europe/Berlin",
        "zone.tab",
        "tzdata.zi",
        "__init__",
        "__init__.py",
        "CET-1CEST",
        "+01:00",
    ],
    ids=lambda zone: ascii(zone[:20]),
)
def test_what_is_no_zone_is_refused_in_one_way(zone: str) -> None:
    """TZ-14: whatever the loader of the standard library does with it."""
    with pytest.raises(InvalidZone) as caught:
        CronSchedule.parse("0 0 * * *", zone)
    assert caught.value.field == "timezone"
    assert len(str(caught.value)) < 200
    assert str(caught.value).isprintable()
    assert str(caught.value).isascii()


def test_the_version_of_the_zone_data_is_known() -> None:
    """TZ-15."""
    assert tzdata_version()[:2] == "20"


@pytest.mark.parametrize(
    ("cron", "zone", "day", "expected"),
    [
        # In Dublin's data UTC+1 is the standard time and winter is the shift.
        ("30 1 * * *", "Europe/Dublin", "2026-03-29", ["2026-03-29T01:00Z"]),
        ("30 1 * * *", "Europe/Dublin", "2026-10-25", ["2026-10-25T00:30Z"]),
        # Back to summer time in the middle of spring, for the month of Ramadan.
        ("30 2 * * *", "Africa/Casablanca", "2026-03-22", ["2026-03-22T02:00Z"]),
        # Another offset for good: half an hour that never was.
        ("45 23 * * *", "Asia/Pyongyang", "2018-05-04", ["2018-05-04T15:00Z"]),
        ("45 2 * * *", "America/Caracas", "2016-05-01", ["2016-05-01T07:00Z"]),
    ],
)
def test_changes_of_every_kind(cron: str, zone: str, day: str, expected: list[str]) -> None:
    """TZ-02: a gap is a gap, whatever the reason for it."""
    assert due(cron, zone, f"{day}T00:00Z", f"{day}T23:00Z") == expected
