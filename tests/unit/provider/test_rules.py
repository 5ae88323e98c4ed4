from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from astrabox.seams.scheduler import InvalidSchedule, Schedule, ScheduleCapacityExceeded
from astrabox_scheduler_crds.cron import CronError
from astrabox_scheduler_crds.deletion import deleted
from astrabox_scheduler_crds.labels import APPLIED_AT_ANNOTATION
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec
from astrabox_scheduler_kubernetes.rules import (
    applied_recently,
    desired,
    differs,
    put_back,
    wanted,
    written,
)

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
        ({}, {"enabled": False}, NOW),
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


def test_a_refused_rule_is_told_once() -> None:
    """G9: in the words of the calculus, which name the field and say what to write."""
    for change in ({"cron": "0 22-2 * * *"}, {"timezone": "Europe/Berln"}, {"cron": "@daily"}):
        with pytest.raises(InvalidSchedule) as caught:
            desired(wanted(rule(**change)), None, NOW)
        assert isinstance(caught.value.__cause__, CronError)
        assert str(caught.value) == str(caught.value.__cause__)


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


def earlier(spec: ScheduleSpec) -> list[tuple[str, str, bool]]:
    return [(each.cron, each.time_zone, each.disabled) for each in spec.earlier]


BERLIN = ("* * * * *", "Europe/Berlin")


@pytest.mark.parametrize(
    ("before", "change", "kept"),
    [
        (None, {}, []),
        ({}, {"cron": "0 9 * * *"}, [(*BERLIN, False)]),
        ({}, {"timezone": "UTC"}, [(*BERLIN, False)]),
        ({}, {"enabled": False}, [(*BERLIN, True)]),
        ({}, {"enabled": False, "cron": "0 9 * * *"}, [(*BERLIN, True)]),
        ({}, {"payload": {"p": 2}}, []),
        ({}, {"cron": "*  * \t* * *"}, []),
        ({"enabled": False}, {}, []),
        ({"enabled": False}, {"enabled": False, "cron": "0 9 * * *"}, []),
        ({"cron": "0 0 1 1 *"}, {}, []),
    ],
)
def test_the_rule_that_a_change_ends_is_kept(
    before: dict[str, Any] | None, change: dict[str, Any], kept: list[tuple[str, str, bool]]
) -> None:
    """G1: what was due by it is still owed."""
    old = None if before is None else stored(**({"cron": BERLIN[0]} | before))
    spec = desired(wanted(rule(**({"cron": BERLIN[0]} | change))), old, NOW)
    assert earlier(spec) == kept
    if kept:
        assert (spec.earlier[0].active_since, spec.earlier[0].active_until) == (OLD, spec.active_since)


def test_what_changes_no_rule_leaves_the_earlier_ones_alone() -> None:
    """An unchanged reconcile writes nothing, however old they are."""
    spec = desired(wanted(rule(cron="0 9 * * *")), stored(cron=BERLIN[0]), NOW)
    old = stored().changed(spec=spec)
    later = NOW + timedelta(hours=5)
    same = desired(wanted(rule(cron="0 9 * * *")), old, later)
    assert not differs(same, old)
    edited = desired(wanted(rule(cron="0 9 * * *", payload={"p": 2})), old, later)
    assert (edited.active_since, edited.earlier_rules) == (spec.active_since, spec.earlier_rules)
    assert desired(wanted(rule()), old, later).earlier_rules is None, "dropped at the next change"


def test_a_change_takes_effect_later_than_the_one_before() -> None:
    """Another replica's clock is a second ahead: operators believe a later time only."""
    ahead = stored()
    ahead = ahead.changed(spec=ahead.spec.changed(active_since=NOW + timedelta(seconds=1)))
    changed = ahead.changed(spec=desired(wanted(rule(cron="0 9 * * *")), ahead, NOW))
    undone = put_back(ahead, changed, NOW)
    times = [each and each.active_since for each in (ahead.spec, changed.spec, undone)]
    assert times == sorted(set(times), key=lambda each: each or NOW)
    assert len(set(times)) == 3


def test_enabling_revives_nothing() -> None:
    disabled = stored().changed(spec=desired(wanted(rule(enabled=False)), stored(cron=BERLIN[0]), NOW))
    again = desired(wanted(rule()), disabled, NOW + timedelta(seconds=1))
    assert earlier(again) == [(*BERLIN, True)]


def test_what_was_put_back_held_all_the_time() -> None:
    """An apply that failed for AstraBox changed no due time, though it was stored for a while."""
    before = stored(cron=BERLIN[0])
    for change in ({"cron": "0 9 * * *"}, {"enabled": False, "cron": BERLIN[0]}):
        found = before.changed(spec=desired(wanted(rule(**change)), before, NOW))
        later = NOW + timedelta(minutes=3)
        spec = put_back(before, found, later)
        assert (spec.cron, spec.enabled, spec.payload) == (BERLIN[0], True, before.spec.payload)
        assert spec.active_since == later
        assert earlier(spec) == [(*BERLIN, False)]
        assert (spec.earlier[0].active_since, spec.earlier[0].active_until) == (OLD, later)
    same_rule = before.changed(spec=before.spec.changed(payload="{}"))
    assert put_back(before, same_rule, NOW) == before.spec


def test_time_is_passed_in() -> None:
    want = wanted(rule())
    assert desired(want, None, NOW) == desired(want, None, NOW + timedelta()), "the clock was read"


def test_a_deleted_schedule_counts_as_none() -> None:
    """Also when nothing else would differ: it is judged, and counts from now on."""
    tombstone = deleted("d", stored(payload="{}", enabled=False), OLD)
    off = desired(wanted(rule(enabled=False, payload={})), tombstone, NOW)
    assert off.active_since == NOW
    assert differs(off, tombstone)
    mars = deleted("d", stored(time_zone="Mars/Olympus"), OLD)
    with pytest.raises(InvalidSchedule, match="zone"):
        desired(wanted(rule(timezone="Mars/Olympus", enabled=False)), mars, NOW)
