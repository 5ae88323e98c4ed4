"""A timeline against a scan of every minute; nothing that is owed is lost by any series of edits."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from astrabox_scheduler_crds.cron import CronSchedule, NoDueTime
from astrabox_scheduler_crds.firing import MAX_CATCH_UP_WINDOW, missed_before
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.schedule import DeploymentSchedule, EarlierRule, ScheduleSpec, ScheduleStatus
from astrabox_scheduler_crds.timeline import Timeline, next_change, replaced, timeline_of

START = datetime(2026, 10, 24, 23, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SPAN = 150
CRONS = ("* * * * *", "*/7 * * * *", "0,30 * * * *", "30 2 * * *", "*/5 1-2 * * *", "0 0 1 1 *")
ZONES = ("UTC", "Europe/Berlin", "Australia/Lord_Howe")

instants = st.integers(-60, SPAN * 60).map(lambda second: START + timedelta(seconds=second))
crons = st.tuples(st.sampled_from(CRONS), st.sampled_from(ZONES))
rules = st.builds(
    lambda cron, since, until, disabled: EarlierRule(
        cron=cron[0], time_zone=cron[1], active_since=since, active_until=until, disabled=disabled
    ),
    crons, instants, instants, st.booleans(),
)  # fmt: skip


def matches(cron: CronSchedule, minute: datetime) -> bool:
    return cron.next_after(minute - timedelta(microseconds=1)) == minute


def minutes(first: datetime, last: datetime) -> list[datetime]:
    """Whole minutes in (first, last]."""
    minute = first.replace(second=0, microsecond=0)
    return [minute + n * MINUTE for n in range(SPAN + 10) if first < minute + n * MINUTE <= last]


@given(st.lists(rules, max_size=5), crons, instants, instants, st.booleans())
def test_a_timeline_is_what_a_scan_of_all_minutes_finds(
    earlier: list[EarlierRule], cron: tuple[str, str], since: datetime, after: datetime, enabled: bool
) -> None:
    spec = ScheduleSpec(
        deployment_id="d", cron=cron[0], time_zone=cron[1], enabled=enabled, payload="{}",
        active_since=since, earlier_rules=tuple(earlier) or None,
    )  # fmt: skip
    present, end = CronSchedule.parse(*cron), START + SPAN * MINUTE
    timeline = timeline_of(spec, present, since)

    def expected(minute: datetime) -> bool:
        if minute > since:
            return enabled and matches(present, minute)
        for rule in sorted(earlier, key=lambda rule: rule.active_since):  # the oldest that claims it has it
            if rule.active_since < minute <= rule.active_until:
                return matches(CronSchedule.parse(rule.cron, rule.time_zone), minute)
        return False

    scanned = [minute for minute in minutes(after, end) if expected(minute)]
    assert list(timeline.between(after, end)) == scanned
    assert walked(timeline, after, end) == scanned
    missed = missed_before(timeline, after, end)
    assert (
        (missed.count, missed.first, missed.last) == (len(scanned), scanned[0], scanned[-1])
        if (missed is not None)
        else not scanned
    )


def walked(timeline: Timeline, after: datetime, end: datetime) -> list[datetime]:
    """The same due times, asked for one after the other as an operator does."""
    found = []
    try:
        while (after := timeline.next_after(after)) <= end:
            found.append(after)
    except NoDueTime:
        pass
    return found


changes = st.tuples(st.integers(1, 1200), crons, st.booleans(), st.booleans())


@given(st.lists(changes, min_size=1, max_size=14))
def test_no_series_of_edits_loses_or_invents_a_due_time(
    series: list[tuple[int, tuple[str, str], bool, bool]],
) -> None:
    """After any edits, what is of the last hour and not settled is what was due at its time."""
    stored = _schedule(("* * * * *", "UTC"), True, START, None, ScheduleStatus())
    held = [(START, ("* * * * *", "UTC"), True)]
    now, settled = START, START
    for seconds, cron, enabled, operator_is_there in series:
        now += timedelta(seconds=seconds)
        if operator_is_there:
            settled = now
            fired = [each for each in _due(held, now) if each <= now]
            stored = stored.changed(status=ScheduleStatus(last_due_time=fired[-1] if fired else None))
        before = (stored.spec.cron, stored.spec.time_zone), stored.spec.enabled
        if before == (cron, enabled):
            continue
        at = next_change(stored, now)
        stored = _schedule(cron, enabled, at, replaced(stored, at, now, enabled=enabled), stored.status)
        held.append((at, cron, enabled))
    end = now + 5 * MINUTE
    timeline = timeline_of(stored.spec, CronSchedule.parse(*held[-1][1]), held[-1][0])
    behind = max(now - MAX_CATCH_UP_WINDOW, settled)
    owed = [each for each in _due(held, end) if each > behind]
    assert list(timeline.between(behind, end)) == owed
    disables = [at for at, _, enabled in held if not enabled]
    assert [each for each in owed if timeline.disabled_by(each) is not None] == [
        each for each in owed if any(each <= at for at in disables)
    ]


def _schedule(
    cron: tuple[str, str], enabled: bool, since: datetime,
    earlier: tuple[EarlierRule, ...] | None, status: ScheduleStatus,
) -> DeploymentSchedule:  # fmt: skip
    spec = ScheduleSpec(
        deployment_id="d", cron=cron[0], time_zone=cron[1], enabled=enabled, payload="{}",
        active_since=since, earlier_rules=earlier,
    )  # fmt: skip
    return DeploymentSchedule(
        metadata=ObjectMeta(name="d", creation_timestamp=START), spec=spec, status=status
    )


def _due(held: list[tuple[datetime, tuple[str, str], bool]], end: datetime) -> list[datetime]:
    """Minute by minute: the rule that was stored at that time decides."""
    found, minute = [], START
    while (minute := minute + MINUTE) <= end:
        _, cron, enabled = [each for each in held if each[0] < minute][-1]
        if enabled and matches(CronSchedule.parse(*cron), minute):
            found.append(minute)
    return found
