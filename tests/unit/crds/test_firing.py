"""Which due times fire."""

from datetime import UTC, datetime, timedelta

import pytest

from astrabox_scheduler_client.transport import DEFAULT_TIMEOUT
from astrabox_scheduler_crds.cron import CronSchedule
from astrabox_scheduler_crds.firing import (
    CATCH_UP_WINDOW,
    CONFIRM_MAX_AGE_SECONDS,
    DISABLE_SETTLE,
    MAX_CATCH_UP_WINDOW,
    PRESENCE_SETTLE,
    START_MAX_AGE_SECONDS,
    Decision,
    Observed,
    decide,
    latest_due,
    missed_before,
    observe_rule,
    observed_from_status,
)
from astrabox_scheduler_crds.labels import ROLE_LABEL
from astrabox_scheduler_crds.lease import LEASE_DURATION_SECONDS, Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.presence import Presence
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec, ScheduleStatus

DUE = datetime(2026, 1, 1, 2, 30, tzinfo=UTC)
NOBODY = Presence((), frozenset())


def provider(acquired: float, renewed: float, *, live: bool) -> Presence:
    spec = LeaseSpec(
        holder_identity="a",
        acquire_time=DUE + timedelta(seconds=acquired),
        renew_time=DUE + timedelta(seconds=renewed),
    )
    lease = Lease(metadata=ObjectMeta(name="a", labels={ROLE_LABEL: "provider"}), spec=spec)
    return Presence((lease,), frozenset({"a"} if live else ()))


THERE = provider(-3600, -3, live=True)
SHOWN = provider(-3600, 596, live=True)

DECISIONS = [
    ("FI-17 a second early", THERE, -1, Decision.WAIT),
    ("FI-16 a microsecond early", THERE, -0.000001, Decision.WAIT),
    ("on the dot", THERE, 0, Decision.FIRE),
    ("operator was away, AstraBox was there", SHOWN, 599, Decision.FIRE),
    ("the window's last moment", SHOWN, 600, Decision.FIRE),
    ("FI-15 beyond the window", SHOWN, 601, Decision.SKIP_MISSED),
    ("beyond it with nobody there", NOBODY, 601, Decision.SKIP_MISSED),
    ("nobody seen yet", NOBODY, 1, Decision.WAIT),
    ("nobody seen for long", NOBODY, 21, Decision.SKIP_NO_PROVIDER),
    ("AstraBox came after it", provider(1, 4, live=True), 5, Decision.WAIT),
    ("AstraBox came after it, settled", provider(1, 30, live=True), 31, Decision.SKIP_NO_PROVIDER),
    ("AstraBox renews after the due time", provider(-60, 30, live=True), 31, Decision.FIRE),
    ("AstraBox was there and went", provider(-60, 2, live=False), 300, Decision.FIRE),
    ("AstraBox went before it", provider(-60, -1, live=False), 300, Decision.SKIP_NO_PROVIDER),
    ("the tail of a killed host", provider(-60, -1, live=True), 1, Decision.FIRE),
]


@pytest.mark.parametrize(
    ("providers", "age", "expected"), [row[1:] for row in DECISIONS], ids=[row[0] for row in DECISIONS]
)
def test_decide(providers: Presence, age: float, expected: Decision) -> None:
    assert decide(DUE, DUE + timedelta(seconds=age), providers) is expected


def test_a_due_time_that_a_disable_overtook_never_fires() -> None:
    """G5; and it is settled only when no create of another operator can be under way."""
    disabled = DUE + timedelta(seconds=60)

    def decided(seconds: float, providers: Presence = SHOWN) -> Decision:
        return decide(DUE, DUE + timedelta(seconds=seconds), providers, disabled_by=disabled)

    assert decided(60) is decided(75) is Decision.WAIT
    assert decided(75.1) is decided(599) is decided(599, NOBODY) is Decision.SKIP_DISABLED
    assert decided(601) is Decision.SKIP_MISSED
    assert DISABLE_SETTLE.total_seconds() > CONFIRM_MAX_AGE_SECONDS + DEFAULT_TIMEOUT


def test_nobody_is_only_believed_once_the_leases_were_seen_for_a_while() -> None:
    """FI-14: an API server that was away over the due time: providers renew when it is back, not before."""
    late = DUE + timedelta(seconds=60)
    assert decide(DUE, late, NOBODY, settled=False) is Decision.WAIT
    assert decide(DUE, late, NOBODY, settled=True) is Decision.SKIP_NO_PROVIDER
    assert decide(DUE, DUE + timedelta(seconds=601), NOBODY, settled=False) is Decision.SKIP_MISSED


def test_the_limits_fit_together() -> None:
    """What the provider declares for a pause is 5 s; by one its clock may be late, the operator's is not."""
    assert CONFIRM_MAX_AGE_SECONDS < START_MAX_AGE_SECONDS
    assert START_MAX_AGE_SECONDS + 1 < 5
    assert timedelta(seconds=LEASE_DURATION_SECONDS) < PRESENCE_SETTLE < CATCH_UP_WINDOW
    assert CATCH_UP_WINDOW <= MAX_CATCH_UP_WINDOW


def schedule(
    cron: str = "30 2 * * *", declared: datetime | None = None, status: ScheduleStatus | None = None
) -> DeploymentSchedule:
    spec = ScheduleSpec(deployment_id="d", cron=cron, time_zone="UTC", payload="{}", active_since=declared)
    created = DUE - timedelta(days=9)
    return DeploymentSchedule(
        metadata=ObjectMeta(name="d", creation_timestamp=created),
        spec=spec,
        status=status or ScheduleStatus(),
    )


def test_a_new_schedule_is_active_since_its_writer_says_or_since_its_creation() -> None:
    now = DUE
    assert observe_rule(
        schedule(declared=DUE - timedelta(hours=1)), None, now
    ).active_since == DUE - timedelta(hours=1)
    assert observe_rule(schedule(), None, now).active_since == DUE - timedelta(days=9)


def test_an_unchanged_rule_stays_active_since_it_was() -> None:
    first = observe_rule(schedule(), None, DUE)
    assert observe_rule(schedule(), first, DUE + timedelta(days=1)) == first


def test_a_rule_edited_by_hand_is_active_from_now_on() -> None:
    """FI-03, FI-04: an edit makes nothing in the past due."""
    first = observe_rule(schedule("0 1 * * *"), None, DUE - timedelta(days=1))
    assert observe_rule(schedule("30 2 * * *"), first, DUE).active_since == DUE


def test_a_rule_that_the_provider_changed_is_active_since_it_says() -> None:
    """The operator may have been away: due times after the edit are still to be caught up."""
    first = observe_rule(schedule("0 1 * * *", DUE - timedelta(days=2)), None, DUE - timedelta(days=1))
    edited = schedule("30 2 * * *", DUE - timedelta(minutes=5))
    assert observe_rule(edited, first, DUE).active_since == DUE - timedelta(minutes=5)


def test_an_edit_by_hand_that_leaves_the_old_declared_time_is_active_from_now_on() -> None:
    declared = DUE - timedelta(days=2)
    first = observe_rule(schedule("0 1 * * *", declared), None, DUE - timedelta(days=1))
    assert observe_rule(schedule("30 2 * * *", declared), first, DUE).active_since == DUE


def test_what_was_observed_survives_the_operator() -> None:
    status = ScheduleStatus(time_rule=schedule().spec.time_rule, active_since=DUE - timedelta(hours=2))
    last = observed_from_status(schedule(status=status))
    assert last == Observed(schedule().spec.time_rule, DUE - timedelta(hours=2), None)
    assert observe_rule(schedule(status=status), last, DUE).active_since == DUE - timedelta(hours=2)
    assert observed_from_status(schedule()) is None


def test_a_status_from_the_far_future_stops_no_schedule() -> None:
    """Written by hand, or under a clock that was set: begin again from what the spec says."""
    status = ScheduleStatus(time_rule=schedule().spec.time_rule, active_since=DUE + timedelta(days=900))
    last = observed_from_status(schedule(status=status))
    assert observe_rule(schedule(status=status), last, DUE).active_since == DUE - timedelta(days=9)


def test_a_payload_edit_is_no_change_of_the_rule() -> None:
    spec = schedule().spec
    assert spec.changed(payload='{"other": 1}').time_rule == spec.time_rule
    for change in ({"cron": "0 0 * * *"}, {"time_zone": "Europe/Berlin"}, {"enabled": False}):
        assert spec.changed(**change).time_rule != spec.time_rule


def test_the_latest_due_time_may_be_the_horizon_itself() -> None:
    minutely = CronSchedule.parse("* * * * *", "UTC")
    assert latest_due(minutely, DUE, DUE + timedelta(minutes=3)) == DUE + timedelta(minutes=3)


@pytest.mark.parametrize("count", [1005, 1030, 1060])
@pytest.mark.parametrize("fired", [0, 1, 3])
def test_the_latest_of_many_missed_ones_is_exact(count: int, fired: int) -> None:
    minutely = CronSchedule.parse("* * * * *", "UTC")
    dues = [DUE + timedelta(minutes=number) for number in range(1, count + 1)]
    gone = frozenset(dues[count - fired :])
    missed = missed_before(minutely, DUE, dues[-1] + timedelta(seconds=7), gone)
    assert missed is not None
    assert (missed.count, missed.first, missed.last) == (1000, dues[0], dues[-1 - fired])


def test_counting_what_was_missed_is_bounded() -> None:
    """FI-01: three hours or three years, the work is the same."""
    minutely = CronSchedule.parse("* * * * *", "UTC")
    assert missed_before(minutely, DUE - timedelta(hours=3), DUE) is not None
    hours = missed_before(minutely, DUE - timedelta(hours=3), DUE)
    assert hours is not None
    assert (hours.count, hours.first, hours.last) == (180, DUE - timedelta(minutes=179), DUE)
    years = missed_before(minutely, DUE - timedelta(days=3000), DUE)
    assert years is not None
    assert years.count == 1000
    assert missed_before(minutely, DUE, DUE) is None
