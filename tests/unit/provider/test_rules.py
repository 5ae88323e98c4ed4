from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from astrabox.seams.scheduler import InvalidSchedule, Schedule, ScheduleCapacityExceeded
from astrabox_scheduler_crds.labels import APPLIED_AT_ANNOTATION
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec
from astrabox_scheduler_kubernetes.rules import applied_recently, desired, wanted, written

OLD = datetime(2026, 1, 1, tzinfo=UTC)
NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)


def rule(**fields: Any) -> Schedule:
    values: dict[str, Any] = {
        "cron": "0 8 * * *",
        "timezone": "Europe/Berlin",
        "enabled": True,
        "payload": {"p": 1},
    } | fields
    return Schedule(deployment_id="d", **values)


def stored(**fields: Any) -> DeploymentSchedule:
    values = {
        "cron": "0 8 * * *",
        "time_zone": "Europe/Berlin",
        "enabled": True,
        "payload": '{"p":1}',
    } | fields
    return DeploymentSchedule(
        metadata=ObjectMeta(name="d"), spec=ScheduleSpec(deployment_id="d", active_since=OLD, **values)
    )


@pytest.mark.parametrize(
    ("before", "change", "since"),
    [
        (None, {}, NOW),
        (None, {"enabled": False}, NOW),
        ({}, {}, OLD),
        ({}, {"payload": {"p": 2}}, OLD),
        ({}, {"cron": "0  8 \t* * * "}, OLD),
        ({}, {"enabled": False}, OLD),
        ({"enabled": False}, {"enabled": False}, OLD),
        ({"enabled": False}, {}, NOW),
        ({}, {"cron": "0 9 * * *"}, NOW),
        ({}, {"timezone": "UTC"}, NOW),
        ({"enabled": False}, {"enabled": False, "cron": "0 9 * * *"}, NOW),
    ],
)
def test_since_when_due_times_count(
    before: dict[str, Any] | None, change: dict[str, Any], since: datetime
) -> None:
    old = None if before is None else stored(**before)
    assert desired(wanted(rule(**change)), old, NOW).active_since == since


@pytest.mark.parametrize("change", [{"enabled": False}, {"payload": {"p": 2}}, {}])
def test_zone_that_left_the_database_is_judged_only_when_new(change: dict[str, Any]) -> None:
    """TZ-09."""
    gone = {"timezone": "Mars/Olympus"}
    want = wanted(rule(**gone, **change))
    assert desired(want, stored(time_zone="Mars/Olympus"), NOW).time_zone == "Mars/Olympus"
    with pytest.raises(InvalidSchedule):
        desired(want, stored(), NOW)
    with pytest.raises(InvalidSchedule):
        desired(want, None, NOW)


def test_sizes_are_counted_in_bytes() -> None:
    wanted(rule(payload={"p": "x" * 999_000}))
    with pytest.raises(ScheduleCapacityExceeded, match="1000000 bytes"):
        wanted(rule(payload={"p": "ż" * 500_001}))


def test_marks_of_others_stay() -> None:
    old = stored()
    old = old.changed(metadata=old.metadata.changed(labels={"team": "a"}, annotations={"n": "m"}))
    want = wanted(rule())
    unmarked = written(want, desired(want, old, NOW), old, None)
    marked = written(want, desired(want, old, NOW), old, NOW)
    assert unmarked.metadata.annotations == {"n": "m"}
    assert marked.metadata.annotations == {"n": "m", APPLIED_AT_ANNOTATION: "2026-06-01T12:00:00Z"}
    assert marked.metadata.labels["team"] == "a"


@pytest.mark.parametrize(
    ("mark", "recent"),
    [
        ("2026-06-01T11:59:30Z", True),
        ("2026-06-01T12:00:01.5Z", True),
        ("2026-06-01T11:58:59Z", False),
        ("2099-01-01T00:00:00Z", False),
        ("2026-06-01T11:59:30", False),
        ("never", False),
        (None, False),
    ],
)
def test_recently_applied(mark: str | None, recent: bool) -> None:
    marks = {} if mark is None else {APPLIED_AT_ANNOTATION: mark}
    schedule = stored().changed(metadata=ObjectMeta(name="d", annotations=marks))
    assert applied_recently(schedule, NOW, 60) is recent


def test_time_is_passed_in() -> None:
    want = wanted(rule())
    assert desired(want, None, NOW) == desired(want, None, NOW + timedelta()), "the clock was read"
