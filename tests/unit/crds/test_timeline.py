"""Which rule held when, and which of them are kept beside the present one."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from astrabox_scheduler_crds.cron import CronSchedule, NoDueTime
from astrabox_scheduler_crds.firing import MAX_CATCH_UP_WINDOW, missed_before
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.schedule import (
    MAX_EARLIER_RULES,
    DeploymentSchedule,
    EarlierRule,
    ScheduleSpec,
    ScheduleStatus,
    Skipped,
)
from astrabox_scheduler_crds.timeline import next_change, replaced, timeline_of

MINUTE = timedelta(minutes=1)
HOUR = CronSchedule.parse("0 * * * *", "UTC")


def at(text: str) -> datetime:
    return datetime.fromisoformat(f"2026-06-01T{text}+00:00")


def rule(since: str, until: str, cron: str = "* * * * *", *, disabled: bool = False) -> EarlierRule:
    return EarlierRule(
        cron=cron, time_zone="UTC", active_since=at(since), active_until=at(until), disabled=disabled
    )


def spec(*earlier: EarlierRule, **fields: Any) -> ScheduleSpec:
    values = {"cron": "0 * * * *", "active_since": at("12:02:30"), "earlier_rules": earlier or None} | fields
    return ScheduleSpec(deployment_id="d", time_zone="UTC", payload="{}", **values)


def schedule(
    *earlier: EarlierRule, status: ScheduleStatus | None = None, **fields: Any
) -> DeploymentSchedule:
    metadata = ObjectMeta(name="d", creation_timestamp=at("06:00"))
    return DeploymentSchedule(
        metadata=metadata, spec=spec(*earlier, **fields), status=status or ScheduleStatus()
    )


def due(timeline: Any, start: str = "11:00", end: str = "14:00") -> list[str]:
    return [f"{each:%H:%M}" for each in timeline.between(at(start), at(end))]


def test_a_due_time_belongs_to_the_rule_that_held_at_it() -> None:
    timeline = timeline_of(
        spec(rule("11:58:30", "12:00"), rule("12:00", "12:02:30", "1 * * * *")), HOUR, at("12:02:30")
    )
    assert due(timeline) == ["11:59", "12:00", "12:01", "13:00", "14:00"]
    assert timeline.start == at("11:58:30")
    assert timeline.next_after(at("12:00")) == at("12:01")
    assert timeline.next_after(at("12:01")) == at("13:00")


def test_while_it_was_disabled_nothing_was_due() -> None:
    spans = (rule("11:58:30", "11:59:30", disabled=True), rule("12:01:30", "12:02:30"))
    timeline = timeline_of(spec(*spans), HOUR, at("12:02:30"))
    assert due(timeline, end="12:59") == ["11:59", "12:02"]
    assert timeline.disabled_by(at("11:59")) is not None
    assert timeline.disabled_by(at("12:02")) is None
    spans = (rule("11:57:30", "11:58:30"), rule("11:58:30", "11:59:30", disabled=True))
    written = timeline_of(spec(*spans), HOUR, at("11:58:45"))
    assert [written.disabled_by(at(each)) is not None for each in ("11:58", "11:58:40", "11:59")] == [
        False,
        True,
        False,
    ]


def test_a_disabled_schedule_has_the_past_alone_and_none_of_it_fires() -> None:
    timeline = timeline_of(spec(rule("11:58:30", "12:00"), enabled=False), HOUR, at("12:02:30"))
    assert due(timeline) == ["11:59", "12:00"]
    assert timeline.disabled_by(at("12:00")) is not None
    with pytest.raises(NoDueTime):
        timeline.next_after(at("12:00"))


def test_the_present_rule_has_what_two_claim_and_the_older_one_among_earlier_ones() -> None:
    """Written by hand: no due time twice, and none out of order."""
    spans = (rule("12:01", "12:40", "*/10 * * * *"), rule("11:00", "12:01:30", "30 * * * *"))
    timeline = timeline_of(spec(*spans), HOUR, at("12:15"))
    assert due(timeline) == ["11:30", "12:10", "13:00", "14:00"]
    assert due(timeline.beginning(at("12:35"))) == ["11:30", "12:10", "12:20", "12:30", "13:00", "14:00"]
    assert timeline.beginning(at("10:00")).start == at("10:00")


def test_an_earlier_rule_that_cannot_be_computed_harms_nothing() -> None:
    broken = rule("11:00", "12:00").changed(time_zone="Mars/Olympus")
    empty = rule("12:00", "11:00")
    timeline = timeline_of(spec(broken, empty), HOUR, at("12:02:30"))
    assert due(timeline) == ["13:00", "14:00"]
    assert timeline.start == at("12:02:30")


def test_what_was_missed_is_counted_over_all_rules() -> None:
    timeline = timeline_of(spec(rule("11:00", "12:02:30"), enabled=False), HOUR, at("12:02:30"))
    missed = missed_before(timeline, at("11:00"), at("23:00"))
    assert missed is not None
    assert (missed.count, missed.first, missed.last) == (62, at("11:01"), at("12:02"))
    long = timeline_of(
        spec(rule("11:00", "12:02:30").changed(active_since=at("11:00") - timedelta(days=9))),
        HOUR,
        at("12:02:30"),
    )
    missed = missed_before(long, long.start, at("23:30"))
    assert missed is not None
    assert (missed.count, missed.last) == (1000, at("23:00"))
    missed = missed_before(long, long.start, at("12:30"))
    assert missed is not None
    assert (missed.count, missed.last) == (1000, at("12:02"))


NOW = at("13:10:20")


def kept(stored: DeploymentSchedule, now: datetime = NOW, *, enabled: bool = True) -> list[tuple[str, ...]]:
    return [
        (
            each.cron,
            f"{each.active_since:%H:%M:%S}",
            f"{each.active_until:%H:%M:%S}",
            *["disabled"] * each.disabled,
        )
        for each in replaced(stored, now, now, enabled=enabled) or ()
    ]


def test_the_rule_that_ends_is_kept() -> None:
    assert kept(schedule()) == [("0 * * * *", "12:02:30", "13:10:20")]
    assert kept(schedule(), enabled=False) == [("0 * * * *", "12:02:30", "13:10:20", "disabled")]


def test_a_disabled_schedule_had_no_rule() -> None:
    assert kept(schedule(enabled=False)) == []


def test_a_rule_without_a_due_time_that_is_still_owed_is_not_kept() -> None:
    """None in it, none lately, or all settled."""
    assert kept(schedule(), at("12:59:59")) == []
    assert kept(schedule(), at("14:00:01") - timedelta(minutes=0.5)) != []
    assert kept(schedule(cron="0 13 * * *"), at("14:00")) == []
    fired = ScheduleStatus(last_due_time=at("13:00"))
    assert kept(schedule(status=fired)) == []
    skipped = ScheduleStatus(skipped=Skipped(count=1, last_due_time=at("13:00"), reason="x"))
    assert kept(schedule(status=skipped)) == []
    assert kept(schedule(status=ScheduleStatus(last_due_time=at("12:00")))) != []
    assert kept(schedule(status=ScheduleStatus(last_due_time=at("20:00")))) != [], (
        "a time nobody can have seen"
    )


def test_an_earlier_rule_goes_when_the_window_is_over_or_it_is_settled() -> None:
    first, second = rule("12:02", "12:05"), rule("12:05", "12:12", "*/11 * * * *")
    stored = schedule(first, second, active_since=at("12:12"))
    assert [each[1] for each in kept(stored, at("12:20"))] == ["12:02:00", "12:05:00"]
    assert [each[1] for each in kept(stored, at("13:06"))] == ["12:05:00", "12:12:00"]
    assert [each[1] for each in kept(stored, at("13:12"))] == ["12:12:00"]
    fired = ScheduleStatus(last_due_time=at("12:05"))
    assert [each[1] for each in kept(stored.changed(status=fired), at("12:20"))] == ["12:05:00"]


def test_a_disable_ends_all_of_them_for_good() -> None:
    stored = schedule(rule("12:00", "12:30"), active_since=at("12:30"))
    once = schedule(*replaced(stored, NOW, NOW, enabled=False) or (), enabled=False, active_since=NOW)
    assert [each[3:] for each in kept(stored, enabled=False)] == [("disabled",), ("disabled",)]
    assert [each[3:] for each in kept(once, NOW + MINUTE)] == [("disabled",), ("disabled",)], "enabled again"
    by_hand = schedule(rule("12:00", "12:30"), enabled=False, active_since=at("12:30"))
    assert [each[3:] for each in kept(by_hand)] == [("disabled",)], "disabled by hand, enabled by AstraBox"


def test_since_when_a_rule_held_is_what_operators_say() -> None:
    """Written by hand at 12:30, seen then; or seen by nobody."""
    declared = schedule(cron="*/5 * * * *")
    seen = ScheduleStatus(time_rule=declared.spec.time_rule, active_since=at("12:33"))
    assert kept(declared.changed(status=seen))[0][1] == "12:33:00"
    unseen = ScheduleStatus(time_rule="of another rule", active_since=at("12:33"))
    assert kept(declared.changed(status=unseen)) == [], "an edit by hand makes nothing in the past due"
    assert kept(schedule(active_since=None), at("07:00:30"))[0][1] == "06:00:00"


def test_no_number_of_edits_loses_a_due_time() -> None:
    """Every second another rule, for two hours without any operator: all of the last hour is still there."""
    now, stored = at("10:00:00"), schedule(cron="* * * * *", active_since=at("10:00"))
    for number in range(2 * 3600):
        now += timedelta(seconds=1)
        since = next_change(stored, now)
        cron = "* * * * *" if number % 2 else "*/1 * * * *"
        earlier = replaced(stored, since, now, enabled=True)
        stored = schedule(*earlier or (), cron=cron, active_since=since)
        assert len(earlier or ()) <= 60 < MAX_EARLIER_RULES
    timeline = timeline_of(stored.spec, CronSchedule.parse("* * * * *", "UTC"), now)
    behind = now - MAX_CATCH_UP_WINDOW
    assert len(list(timeline.between(behind, now))) == 60


def test_a_change_is_later_than_the_one_before() -> None:
    """Two processes whose clocks differ: `observe_rule` believes a later time only."""
    ahead = schedule(active_since=NOW + timedelta(seconds=1))
    assert next_change(ahead, NOW) == NOW + timedelta(seconds=1, microseconds=1)
    assert next_change(schedule(), NOW) == NOW
    assert next_change(None, NOW) == NOW
    assert next_change(schedule(active_since=datetime(2099, 1, 1, tzinfo=UTC)), NOW) == NOW
