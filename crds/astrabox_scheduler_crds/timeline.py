"""Which time rule held when: the due times of a schedule over the rules that it has had.

A due time belongs to the rule that held at it. When AstraBox changes the rule while operators are
away, the due times of the old one are still owed: the writer keeps what it replaces beside the new
rule (`replaced`), and an operator, whatever it knew before, reads both (`Timeline`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from astrabox_scheduler_crds.cron import CronError, CronSchedule, NoDueTime
from astrabox_scheduler_crds.firing import (
    FUTURE_TOLERANCE,
    MAX_CATCH_UP_WINDOW,
    just_before,
    observe_rule,
    observed_from_status,
)
from astrabox_scheduler_crds.schedule import (
    MAX_EARLIER_RULES,
    DeploymentSchedule,
    EarlierRule,
    ScheduleSpec,
    ScheduleStatus,
)

_LEAST: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Span:
    """An earlier rule, which held in (`since`, `until`]. `disabled`: its due times fire no more.

    `disabled_at`: since when, where that is known; later than `until` if the rule was edited before.
    """

    cron: CronSchedule
    since: datetime
    until: datetime
    disabled: bool
    disabled_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """Due times of `earlier` (ascending and apart), and of `cron` after `since`.

    `cron` is None while the schedule is disabled. Where an earlier rule and the present one both
    claim a time, it is the present one's. All datetimes aware UTC.
    """

    cron: CronSchedule | None
    since: datetime
    earlier: tuple[Span, ...] = ()

    @property
    def start(self) -> datetime:
        """No due time is at or before this."""
        return min(self.earlier[0].since, self.since) if self.earlier else self.since

    def beginning(self, since: datetime) -> "Timeline":
        """The same with another beginning of the present rule."""
        return replace(self, since=since)

    def next_after(self, instant: datetime) -> datetime:
        """The first due time later than `instant`. Raises NoDueTime, or another CronError."""
        if self.earlier:
            due = next(self._of_earlier(instant, self.since), None)
            if due is not None:
                return due
        if self.cron is None:
            raise NoDueTime("A disabled schedule has no due time.")
        return self.cron.next_after(max(instant, self.since))

    def between(self, start: datetime, end: datetime) -> Iterator[datetime]:
        """The due times with start < due time <= end, ascending."""
        yield from self._of_earlier(start, end)
        if self.cron is not None:
            yield from self.cron.between(max(start, self.since), end)

    def disabled_by(self, due: datetime) -> datetime | None:
        """When the rule of this due time was disabled, at the latest; None if it was not."""
        if due > self.since:
            return None
        for span in self.earlier:
            if span.disabled and span.since < due <= span.until:
                return min(span.disabled_at or self.since, self.since)
        return None

    def _of_earlier(self, start: datetime, end: datetime) -> Iterator[datetime]:
        for span in self.earlier:
            yield from span.cron.between(max(start, span.since), min(end, span.until, self.since))


def timeline_of(spec: ScheduleSpec, cron: CronSchedule, since: datetime) -> Timeline:
    """The due times of a schedule whose present rule, `cron`, holds since then.

    Of earlier rules that claim the same time the older one has it; one that cannot be computed (its
    zone has left the tz database) has no due times. While the schedule is disabled none of them fires.
    """
    present = cron if spec.enabled else None
    if not spec.earlier_rules:
        return Timeline(present, since)
    spans: list[Span] = []
    for rule in sorted(spec.earlier, key=lambda rule: rule.active_since):
        first = max(rule.active_since, spans[-1].until) if spans else rule.active_since
        known = _cron_of(rule)
        if known is not None and first < rule.active_until:
            disabled = rule.disabled or not spec.enabled
            spans.append(Span(known, first, rule.active_until, disabled, rule.disabled_at))
    return Timeline(present, since, tuple(spans))


def next_change(stored: DeploymentSchedule | None, now: datetime) -> datetime:
    """When a change of the time rule that is written at `now` takes effect: later than the one before.

    Two writers' clocks differ, and only a later time is believed (`observe_rule`).
    """
    last = stored.spec.active_since if stored is not None else None
    if last is None or last > now + FUTURE_TOLERANCE:
        return now
    return max(now, last + _LEAST)


def replaced(
    schedule: DeploymentSchedule, at: datetime, now: datetime, *, enabled: bool
) -> tuple[EarlierRule, ...] | None:
    """The rules to keep when this schedule gets another rule `at` that time, or is disabled or enabled.

    Those that may have a due time which is not settled and could still fire: later than the longest
    catch-up window ago and than what the status has reached. As they do not overlap, and each has a
    whole minute of its own, there are no more than that window has minutes.
    """
    rules = list(schedule.spec.earlier)
    if schedule.spec.enabled:
        since = observe_rule(schedule, observed_from_status(schedule), now).active_since
        present = EarlierRule(
            cron=schedule.spec.cron, time_zone=schedule.spec.time_zone, active_since=since, active_until=at
        )
        rules.append(present)
    behind = _settled(schedule.status, now)
    owed = [rule for rule in rules if _may_have_due_time(rule, behind)]
    if not (enabled and schedule.spec.enabled):
        disabled_at = at if schedule.spec.enabled else None  # disabled by hand before: nobody wrote down when
        owed = [
            rule if rule.disabled else rule.changed(disabled=True, disabled_at=disabled_at) for rule in owed
        ]
    return tuple(owed[-MAX_EARLIER_RULES:]) or None


def _settled(status: ScheduleStatus, now: datetime) -> datetime:
    """Due times are settled in their order: all up to this one are, and what no window reaches back to.

    But for those that may yet turn out to have been skipped wrongly (`Skipped.unproven_since`).
    """
    oldest = now - MAX_CATCH_UP_WINDOW
    skipped = status.skipped
    reached = (status.last_due_time, skipped.last_due_time if skipped is not None else None)
    told = [each for each in reached if each is not None and each <= now + FUTURE_TOLERANCE]
    settled = max([oldest, *told])
    if skipped is not None and skipped.unproven_since is not None:
        return min(settled, just_before(skipped.unproven_since, oldest))
    return settled


def _may_have_due_time(rule: EarlierRule, behind: datetime) -> bool:
    """Whether it has one later than `behind`; one that cannot be computed here may be known elsewhere."""
    first = max(rule.active_since, behind)
    if first >= rule.active_until:
        return False
    cron = _cron_of(rule)
    return cron is None or next(cron.between(first, rule.active_until), None) is not None


def _cron_of(rule: EarlierRule) -> CronSchedule | None:
    try:
        return CronSchedule.parse(rule.cron, rule.time_zone)
    except CronError:
        return None
