"""Any course of steps: phases never go backwards, what is set stays, an end is an end."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from astrabox_scheduler_crds.run import Phase, RunStatus
from astrabox_scheduler_crds.transitions import (
    Cancellation,
    RetryPolicy,
    TransitionError,
    status_patch,
    with_attempt,
    with_cancellation,
    with_exhaustion,
    with_failure,
    with_release,
    with_session,
    with_turn,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
POLICY = RetryPolicy(max_attempts=3)
RANK = {
    Phase.QUEUED: 0, Phase.RUNNING: 1, Phase.RETRYING: 1,
    Phase.SUCCEEDED: 2, Phase.FAILED: 2, Phase.CANCELLED: 2,
}  # fmt: skip

Step = Callable[[RunStatus, datetime], RunStatus]
STEPS: dict[str, Step] = {
    "attempt": lambda status, now: with_attempt(status, "a", now),
    "session": lambda status, _: with_session(status, "s"),
    "other session": lambda status, _: with_session(status, "s2"),
    "turn": lambda status, now: with_turn(status, "t", "c", now),
    "failure": lambda status, now: with_failure(status, "e", permanent=False, policy=POLICY, now=now),
    "permanent": lambda status, now: with_failure(status, "e", permanent=True, policy=POLICY, now=now),
    "exhaustion": with_exhaustion,
    "release": lambda status, _: with_release(status),
    "cancel": lambda status, now: with_cancellation(status, Cancellation.DISABLED, now),
}


@given(st.lists(st.sampled_from(sorted(STEPS)), max_size=25))
def test_never_backwards(course: list[str]) -> None:
    status = RunStatus()
    for number, name in enumerate(course):
        try:
            after = STEPS[name](status, START + timedelta(seconds=number))
        except TransitionError:
            continue
        assert not status.finished
        assert RANK[Phase(after.phase)] >= RANK[Phase(status.phase)]
        assert after.attempts >= status.attempts
        assert after.releases >= status.releases
        assert after.failures >= status.failures
        assert after.losses >= (1 if after.phase == Phase.RUNNING and name == "attempt" else 0)
        for field in ("session_id", "turn_id", "started_at"):
            assert getattr(status, field) in (None, getattr(after, field))
        assert after.phase != Phase.SUCCEEDED or (after.session_id and after.turn_id)
        assert after.phase != Phase.CANCELLED or after.session_id is None
        assert merged(status, status_patch(status, after)) == after
        status = after


def merged(status: RunStatus, patch: dict[str, object]) -> RunStatus:
    """What the API server stores after the merge patch."""
    values = {**status.to_dict(), **patch}
    return RunStatus.model_validate({key: value for key, value in values.items() if value is not None})


@given(st.integers(min_value=0, max_value=10_000))
def test_backoff_grows_and_is_bounded(attempts: int) -> None:
    policy = RetryPolicy()
    assert policy.delay(attempts) <= policy.delay(attempts + 1) <= timedelta(seconds=policy.max_delay)
