"""The value itself: what it takes, gives and shares."""

import copy
import pickle
import re
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from threading import Lock
from zoneinfo import ZoneInfo

import pytest
from croniter import CroniterBadDateError

from astrabox_scheduler_crds.cron import CronError, CronSchedule, InvalidCron, NoDueTime
from astrabox_scheduler_crds.cron import wall as wall_module
from tests.unit.cron.due import at, due, first


def test_white_space_is_normalised_and_nothing_else() -> None:
    schedule = CronSchedule.parse(" 0\t 9  * * MON-fri ", "UTC")
    assert (schedule.text, schedule.zone) == ("0 9 * * MON-fri", "UTC")


def test_equal_by_text_and_zone() -> None:
    schedule = CronSchedule.parse("0 9 * * *", "UTC")
    assert schedule is CronSchedule.parse("0 9 * * *", "UTC")
    assert schedule == CronSchedule.parse("0  9 * * *", "UTC")
    assert len({schedule, CronSchedule.parse("0  9 * * *", "UTC")}) == 1
    assert schedule != CronSchedule.parse("0 9 * * *", "GMT")
    assert schedule != CronSchedule.parse("00 9 * * *", "UTC")
    assert repr(schedule) == "CronSchedule(text='0 9 * * *', zone='UTC')"


def test_frozen() -> None:
    schedule = CronSchedule.parse("0 9 * * *", "UTC")
    with pytest.raises(AttributeError):
        schedule.text = "1 9 * * *"  # type: ignore[misc]


def test_survives_a_pickle_and_a_copy() -> None:
    schedule = CronSchedule.parse("0 9 * * *", "Europe/Zurich")
    assert pickle.loads(pickle.dumps(schedule)) is schedule
    assert copy.deepcopy(schedule) is schedule


def test_an_error_survives_a_pickle() -> None:
    with pytest.raises(InvalidCron) as caught:
        CronSchedule.parse("0 24 * * *", "UTC")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.field) == (str(caught.value), "hour")


def test_expressions_of_one_meaning_share_one_croniter() -> None:
    wall_module._wall_clock.cache_clear()
    wall_module.next_wall_minute.cache_clear()
    for text in ("0 9 * * 1-5", "0 9 * * mon-fri", "00 9 * jan-dec 1,2,3,4,5", "0 9 31 * 1-5"):
        for zone in ("UTC", "Asia/Tokyo"):
            first(1, text, zone, "2026-01-01T00:00Z")
    assert wall_module._wall_clock.cache_info().currsize == 2


def test_a_naive_datetime_is_a_value_error() -> None:
    schedule, instant = CronSchedule.parse("0 9 * * *", "UTC"), at("2026-01-01T00:00Z")
    naive = instant.replace(tzinfo=None)
    with pytest.raises(ValueError, match="naive"):
        schedule.next_after(naive)
    for start, end in ((naive, instant), (instant, naive)):
        with pytest.raises(ValueError, match="naive"):
            schedule.between(start, end)


@pytest.mark.parametrize(
    "zone",
    [UTC, timezone(timedelta(hours=-7, minutes=-30)), ZoneInfo("Europe/Berlin"), ZoneInfo("Asia/Tokyo")],
    ids=str,
)
def test_an_instant_may_come_in_any_zone_and_leaves_in_utc(zone: ZoneInfo | timezone) -> None:
    # 00:30Z is 02:30 in Berlin, an hour before the same local time comes again.
    instant = at("2026-10-25T00:30Z").astimezone(zone)
    found = CronSchedule.parse("0 2-3 * * *", "Europe/Berlin").next_after(instant)
    assert found.isoformat() == "2026-10-25T02:00:00+00:00"
    assert found.tzinfo is UTC


def test_between_is_lazy_and_takes_its_end_but_not_its_start() -> None:
    assert due("0 * * * *", "UTC", "2026-01-01T00:00Z", "2026-01-01T02:00Z") == [
        "2026-01-01T01:00Z",
        "2026-01-01T02:00Z",
    ]
    assert due("0 * * * *", "UTC", "2026-01-01T02:00Z", "2026-01-01T02:00Z") == []
    assert due("0 * * * *", "UTC", "2026-01-01T03:00Z", "2026-01-01T02:00Z") == []
    endless = CronSchedule.parse("* * * * *", "UTC").between(
        at("2026-01-01T00:00Z"), datetime.max.replace(tzinfo=UTC)
    )
    assert next(endless) == at("2026-01-01T00:01Z")


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Pacific/Kiritimati", "Pacific/Niue"])
@pytest.mark.parametrize("cron", ["0 0 29 2 *", "* * * * *", "30 2 * * *", "*/7 */5 1 1 *"])
def test_the_ends_of_the_calendar(cron: str, zone: str) -> None:
    """The last due times before the year 10000 are found, and then the search ends."""
    schedule = CronSchedule.parse(cron, zone)
    last = datetime.max.replace(tzinfo=UTC)
    for back in (timedelta(0), timedelta(minutes=5), timedelta(hours=30)):
        found = list(schedule.between(last - back, last))
        assert found == sorted(set(found))
        for start in (*found[-1:], last):
            with pytest.raises(NoDueTime, match="9999"):
                schedule.next_after(start)
    early = schedule.next_after(datetime.min.replace(tzinfo=UTC))
    assert early > datetime.min.replace(tzinfo=UTC)


def test_the_last_minute_of_the_calendar_is_a_due_time() -> None:
    schedule = CronSchedule.parse("59 23 31 12 *", "UTC")
    assert schedule.next_after(at("9998-12-31T23:59Z")).isoformat() == "9999-12-31T23:59:00+00:00"


@pytest.mark.parametrize("found", [CroniterBadDateError("none"), 0.0, 60.0])
def test_a_library_that_fails_or_stands_still_is_an_error_and_no_loop(
    found: float | Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CC-24: a result that does not advance is an error of that schedule alone."""

    class Broken:
        def next_match(self, minute: int) -> int:
            if isinstance(found, Exception):
                raise found
            return int(found) // 60

    monkeypatch.setattr(wall_module, "_wall_clock", lambda normal: Broken())
    wall_module.next_wall_minute.cache_clear()
    for cron in ("0 9 * * *", "0 * * * *"):
        schedule = CronSchedule.parse(cron, "UTC")
        with pytest.raises(CronError, match=r"advance|no date"):
            schedule.next_after(at("1970-01-02T00:00Z"))
        with pytest.raises(CronError, match=r"advance|no date"):
            list(schedule.between(at("1970-01-02T00:00Z"), at("1970-01-04T00:00Z")))
    wall_module.next_wall_minute.cache_clear()


def test_threads_share_one_croniter_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """It keeps the start of a search in itself."""
    clock = wall_module._WallClock("0 9 * * *")
    free, alone = Lock(), []

    class Watched:
        def get_next(self, kind: type, start_time: float, **options: object) -> float:
            alone.append(free.acquire(blocking=False))
            time.sleep(0.002)
            if alone[-1]:
                free.release()
            return start_time + 60

    monkeypatch.setattr(clock, "_cron", Watched())
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(clock.next_match, range(8))) == list(range(1, 9))
    assert alone == [True] * 8


@pytest.mark.parametrize(
    ("cron", "field"),
    [
        ("60 * * * *", "minute"),
        ("a * * * *", "minute"),
        ("1,,2 * * * *", "minute"),
        (", * * * *", "minute"),
        ("*5 * * * *", "minute"),
        ("*-5 * * * *", "minute"),
        ("/5 * * * *", "minute"),
        ("5/ * * * *", "minute"),
        ("*/-5 * * * *", "minute"),
        ("0\n0 * * * *", "minute"),
        ("0\xa0 0 * * *", "minute"),
        ("\0 * * * *", "minute"),
        ("\ud800 * * * *", "minute"),
        ("1.5 * * * *", "minute"),
        ("0 24 * * *", "hour"),
        ("0 5-5-5 * * *", "hour"),
        ("0 9am * * *", "hour"),
        ("0 0 jan * *", "day of month"),
        ("0 0 1 mon *", "month"),
        ("0 0 1 january *", "month"),
        ("0 0 * * jan", "day of week"),
        ("0 0 * * 0-8", "day of week"),
        ("0 0 * * mon/tue", "day of week"),
        ("0 0 * * *\n", "day of week"),
        ("0 0 * * 1.", "day of week"),
        ("* " * 127 + "* *", "expression"),
        ("0" * 257, "expression"),
        ("0 0 * * *" + " " * 300, "expression"),
    ],
    ids=lambda value: ascii(value[:20]),
)
def test_a_refusal_names_the_field_and_can_be_shown_anywhere(cron: str, field: str) -> None:
    with pytest.raises(InvalidCron) as caught:
        CronSchedule.parse(cron, "UTC")
    assert caught.value.field == field
    message = str(caught.value)
    assert field in message
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 250
    assert message.endswith(".")


@pytest.mark.parametrize(
    ("cron", "instead", "right"),
    [
        ("0 22-2 * * *", "22-23,0-2", "0 22-23,0-2 * * *"),
        ("0 23-0 * * *", "23,0", "0 23,0 * * *"),
        ("0 8 * * fri-mon", "fri-sat,sun-mon", "0 8 * * fri-sat,sun-mon"),
        ("0 8 * * 7-1", "0-1", "0 8 * * 0-1"),
        ("0 8 * * 7-2/2", "0-2/2", "0 8 * * 0-2/2"),
        ("0 8 * * 5-1/2", "5,0", "0 8 * * 5,0"),
        ("0 0 1 11-2/3 *", "11,2", "0 0 1 11,2 *"),
        ("0 0 1 nov-feb *", "nov-dec,jan-feb", "0 0 1 nov-dec,jan-feb *"),
        ("50-10/20 * * * *", "50,10", "50,10 * * * *"),
        ("0 0 ? * *", "*", "0 0 * * *"),
        ("@daily", "0 0 * * *", "0 0 * * *"),
        ("@Hourly", "0 * * * *", "0 * * * *"),
        ("@annually", "0 0 1 1 *", "0 0 1 1 *"),
    ],
)
def test_a_refusal_gives_what_to_write(cron: str, instead: str, right: str) -> None:
    with pytest.raises(InvalidCron, match=re.escape(f"write {instead}") + "[.,]"):
        CronSchedule.parse(cron, "UTC")
    assert CronSchedule.parse(right, "UTC").text == right


def test_an_expression_may_be_256_bytes_long() -> None:
    text = "0 0 * * 1" + " " * (256 - 9)
    assert CronSchedule.parse(text, "UTC").text == "0 0 * * 1"
    minutes = ",".join(["0"] * 123)
    assert first(1, f"{minutes} 0 * * *", "UTC", "2026-01-01T00:00Z") == ["2026-01-02T00:00Z"]


@pytest.mark.parametrize(
    ("cron", "same"),
    [
        ("*/1 * * * *", "* * * * *"),
        ("*,0 0 * * *", "* 0 * * *"),
        ("0 0 1-31 * 1", "0 0 * * *"),
        ("0 0 1 * 0-7", "0 0 * * *"),
        ("0 0 31 feb mon", "0 0 * 2 1"),
        ("0 0 * JAN-Mar,dec *", "0 0 * 1,2,3,12 *"),
        ("05 007 * * *", "5 7 * * *"),
        ("0/20 0 * * *", "0,20,40 0 * * *"),
    ],
)
def test_two_ways_to_write_one_thing(cron: str, same: str) -> None:
    for start in ("2026-01-01T00:00Z", "2027-12-30T12:00Z"):
        assert first(20, cron, "UTC", start) == first(20, same, "UTC", start)
