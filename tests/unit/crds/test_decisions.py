"""The small decisions: assignment, recovery, retention."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import product

import pytest

from astrabox_scheduler_crds.assignment import owner
from astrabox_scheduler_crds.labels import ROLE_LABEL
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta, ObjectRef
from astrabox_scheduler_crds.presence import Presence
from astrabox_scheduler_crds.recovery import Orphan, lease_is_needed, settle_orphan
from astrabox_scheduler_crds.retention import expired_runs
from astrabox_scheduler_crds.run import Phase, RunInvocation, RunSpec, RunStatus, Trigger
from astrabox_scheduler_crds.transitions import Cancellation, with_cancellation

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(seconds=1)


def test_all_processes_choose_the_same_owner_in_any_order() -> None:
    assert owner("run", ["a", "b", "c"]) == owner("run", ["c", "a", "b"])
    assert owner("run", []) is None


def test_when_one_goes_only_its_items_move() -> None:
    items = [f"run-{number}" for number in range(2000)]
    before = {item: owner(item, ["a", "b", "c"]) for item in items}
    after = {item: owner(item, ["a", "c"]) for item in items}
    assert all(after[item] == before[item] for item in items if before[item] != "b")
    assert all(500 < count < 850 for count in Counter(before.values()).values())


def run(trigger: Trigger = "schedule", status: RunStatus | None = None) -> RunInvocation:
    due = NOW if trigger == "schedule" else None
    spec = RunSpec(deployment_id="d", trigger=trigger, due_time=due, payload="{}")
    return RunInvocation(metadata=ObjectMeta(name="d-1"), spec=spec, status=status or RunStatus())


def presence(acquired: float, renewed: float, *live: str) -> Presence:
    spec = LeaseSpec(
        acquire_time=NOW + timedelta(seconds=acquired), renew_time=NOW + timedelta(seconds=renewed)
    )
    lease = Lease(metadata=ObjectMeta(name="p", labels={ROLE_LABEL: "provider"}), spec=spec)
    return Presence((lease,), frozenset(live))


GONE_BEFORE = presence(-60, -1)
MAY_BE_GONE = presence(-60, -1, "p")
GONE_AFTER = presence(-60, 1)
CAME_LATER = presence(3600, 3605, "p")

ORPHANS = [
    ("due in the tail of a killed host", run(), GONE_BEFORE, Orphan.CANCEL),
    ("due in what may be such a tail", run(), MAY_BE_GONE, Orphan.WAIT),
    ("started in what may be such a tail", run(status=RunStatus(attempts=1)), MAY_BE_GONE, Orphan.ADOPT),
    ("seen by a host that came an hour later", run(), CAME_LATER, Orphan.CANCEL),
    ("a host was there at the due time", run(), GONE_AFTER, Orphan.ADOPT),
    ("started", run(status=RunStatus(phase=Phase.RUNNING, attempts=1)), GONE_BEFORE, Orphan.ADOPT),
    ("has a Session", run(status=RunStatus(phase=Phase.RUNNING, session_id="s")), GONE_BEFORE, Orphan.ADOPT),
    ("run now", run("manual"), GONE_BEFORE, Orphan.ADOPT),
    ("replay", run("replay"), GONE_BEFORE, Orphan.ADOPT),
    ("ended", run(status=RunStatus(phase=Phase.CANCELLED)), GONE_BEFORE, Orphan.ADOPT),
    ("of a later version", run(status=RunStatus(phase="Paused")), GONE_BEFORE, Orphan.ADOPT),
]


@pytest.mark.parametrize(
    ("each", "providers", "expected"), [row[1:] for row in ORPHANS], ids=[row[0] for row in ORPHANS]
)
def test_settle_orphan(each: RunInvocation, providers: Presence, expected: Orphan) -> None:
    """A window of nothing: what may wait no longer. Whoever does not know the window cancels nothing."""
    assert settle_orphan(each, providers, LATER, timedelta(0)) is expected
    waits = settle_orphan(each, providers, LATER, timedelta(minutes=1)) is Orphan.WAIT
    assert waits is (expected is not Orphan.ADOPT)
    assert (settle_orphan(each, providers, LATER) is Orphan.WAIT) is waits


def test_what_is_to_be_cancelled_can_be() -> None:
    """Whatever the state: whoever decides so need not be ready for a refusal."""
    cancelled = 0
    for phase, attempts, releases, session in product([*Phase, "Paused"], range(3), range(3), (None, "s")):
        status = RunStatus(phase=phase, attempts=attempts, releases=releases, session_id=session)
        if settle_orphan(run(status=status), GONE_BEFORE, LATER, timedelta(0)) is Orphan.CANCEL:
            done = with_cancellation(status, Cancellation.NOBODY_THERE, NOW)
            assert done.phase == Phase.CANCELLED
            assert done.last_error == Cancellation.NOBODY_THERE.message
            assert {each.reason for each in done.conditions} == {Cancellation.NOBODY_THERE.reason}
            cancelled += 1
    assert cancelled > 5


def test_a_run_created_by_hand_before_its_due_time_is_not_called_missed() -> None:
    assert settle_orphan(run(), GONE_BEFORE, NOW - timedelta(seconds=30), timedelta(0)) is Orphan.WAIT


def test_a_lease_stays_while_its_interval_can_matter() -> None:
    horizon = NOW - timedelta(minutes=20)
    assert lease_is_needed(None, horizon)
    assert lease_is_needed(horizon, horizon)
    assert not lease_is_needed(horizon - timedelta(seconds=1), horizon)


def finished(deployment: str, age: timedelta, name: str = "") -> ObjectRef:
    return ObjectRef(name or f"{deployment}-{age}", None, None, NOW - age, deployment)


FLOOR = timedelta(minutes=20)


def test_the_newest_stay_per_deployment() -> None:
    runs = [finished(d, timedelta(hours=h)) for d in ("a", "b") for h in (1, 2, 3, 4, 5)]
    expired = expired_runs(runs, keep=3, floor=FLOOR, now=NOW)
    assert [meta.name for meta in expired] == [
        "a-5:00:00", "b-5:00:00", "a-4:00:00", "b-4:00:00",
    ]  # fmt: skip


def test_a_young_run_stays_whatever_the_limit() -> None:
    """OO-02: its name guards its due time for as long as a replica may have it in hand."""
    runs = [finished("a", timedelta(minutes=m)) for m in (1, 19, 20, 21)]
    expired = expired_runs(runs, keep=0, floor=FLOOR, now=NOW)
    assert {meta.name for meta in expired} == {"a-0:20:00", "a-0:21:00"}


def test_runs_of_one_second_are_told_apart_by_name() -> None:
    runs = [finished("a", timedelta(hours=1), name) for name in ("a-1", "a-3", "a-2")]
    assert [meta.name for meta in expired_runs(runs, keep=1, floor=FLOOR, now=NOW)] == ["a-1", "a-2"]
