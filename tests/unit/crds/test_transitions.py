"""The states of a run: what may follow what."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from astrabox_scheduler_crds.run import FINISHED, Phase, RunStatus
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

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LATER = NOW + timedelta(seconds=7)
POLICY = RetryPolicy(max_attempts=3, first_delay=2, factor=3, max_delay=10)


def failed(status: RunStatus, *, permanent: bool = False) -> RunStatus:
    return with_failure(status, "RuntimeError: no", permanent=permanent, policy=POLICY, now=NOW)


def test_the_plain_course() -> None:
    queued = RunStatus()
    running = with_attempt(queued, "host-a", NOW)
    assert (running.phase, running.attempts, running.started_at) == (Phase.RUNNING, 1, NOW)
    held = with_session(running, "s1")
    done = with_turn(held, "t1", None, LATER)
    assert (done.phase, done.session_id, done.turn_id, done.finished_at) == (
        Phase.SUCCEEDED,
        "s1",
        "t1",
        LATER,
    )
    assert {each.type: each.status for each in done.conditions} == {
        "Finished": "True",
        "Succeeded": "True",
        "Failed": "False",
    }


def test_an_attempt_that_fails_waits_longer_each_time_and_then_the_run_has_failed() -> None:
    status, waits = RunStatus(), []
    while not status.finished:
        status = failed(with_attempt(status, "host-a", NOW))
        if status.next_attempt_time:
            waits.append((status.next_attempt_time - NOW).total_seconds())
    assert waits == [2, 6]
    assert (status.phase, status.attempts, status.last_error) == (Phase.FAILED, 3, "RuntimeError: no")
    assert {each.type: each.reason for each in status.conditions}["Failed"] == "RetriesExhausted"


def test_a_permanent_error_ends_it_at_once() -> None:
    assert failed(with_attempt(RunStatus(), "a", NOW), permanent=True).phase == Phase.FAILED


def test_backoff_is_bounded_for_any_number_of_attempts() -> None:
    assert RetryPolicy().delay(10_000) == timedelta(seconds=300)
    assert RetryPolicy().delay(0) == timedelta(seconds=2)


def test_a_release_does_not_use_up_an_attempt() -> None:
    status = RunStatus()
    for _ in range(10):
        status = with_release(with_attempt(status, "a", NOW))
        assert not POLICY.exhausted(status)
    last = failed(with_attempt(status, "a", NOW))
    assert last.phase == Phase.RETRYING
    assert last.next_attempt_time == NOW + timedelta(seconds=2)


def test_lost_processes_use_up_the_attempts() -> None:
    status = RunStatus()
    for _ in range(3):
        assert not POLICY.exhausted(status)
        status = with_attempt(status, "a", NOW)
    assert POLICY.exhausted(status)
    assert with_exhaustion(status, NOW).phase == Phase.FAILED


def test_losses_are_what_neither_failed_nor_was_released() -> None:
    """Two failures, a release in the attempt after them, and two lost processes."""
    status = RunStatus()
    for end in (failed, failed, with_release, None, None):
        begun = with_attempt(status, "a", NOW)
        status = end(begun) if end else begun
    assert (status.attempts, status.failures, status.releases, status.losses) == (5, 2, 1, 2)
    assert failed(with_attempt(RunStatus(), "a", NOW), permanent=True).failures == 1


def test_the_session_is_set_once() -> None:
    status = with_session(with_attempt(RunStatus(), "a", NOW), "s1")
    assert with_session(status, "s1") == status
    with pytest.raises(TransitionError, match="another Session"):
        with_session(status, "s2")


def test_no_turn_without_a_session() -> None:
    with pytest.raises(TransitionError):
        with_turn(with_attempt(RunStatus(), "a", NOW), "t", None, NOW)


def test_only_a_run_without_a_session_is_cancelled() -> None:
    running = with_attempt(RunStatus(), "a", NOW)
    assert with_cancellation(running, Cancellation.DISABLED, NOW).phase == Phase.CANCELLED
    with pytest.raises(TransitionError):
        with_cancellation(with_session(running, "s"), Cancellation.DISABLED, NOW)


STEPS: list[Callable[[RunStatus], RunStatus]] = [
    lambda status: with_attempt(status, "a", NOW),
    lambda status: with_session(status, status.session_id or "s"),
    lambda status: with_turn(status, "t", None, NOW),
    failed,
    lambda status: with_exhaustion(status, NOW),
    with_release,
    lambda status: with_cancellation(status, Cancellation.DISABLED, NOW),
]


@pytest.mark.parametrize("phase", sorted(FINISHED))
@pytest.mark.parametrize("step", STEPS)
def test_nothing_follows_a_finished_run(phase: Phase, step: Callable[[RunStatus], RunStatus]) -> None:
    with pytest.raises(TransitionError):
        step(RunStatus(phase=phase, session_id="s", attempts=1))


@pytest.mark.parametrize("step", STEPS)
def test_a_phase_of_a_later_version_is_left_alone(step: Callable[[RunStatus], RunStatus]) -> None:
    """IN-08: unknown is unknown, not an error at reading and nothing to act on."""
    status = RunStatus.from_json('{"phase": "Paused"}')
    assert not status.finished
    with pytest.raises(TransitionError, match="Paused"):
        step(status)


def test_an_error_text_is_bounded_and_can_be_stored() -> None:
    status = with_failure(
        with_attempt(RunStatus(), "a", NOW), "x\ud800" * 10_000, permanent=True, policy=POLICY, now=NOW
    )
    assert status.last_error is not None
    assert len(status.last_error) <= 1024
    assert len(status.to_json()) < 8192


def test_a_patch_says_what_changed_and_what_went() -> None:
    waiting = failed(with_attempt(RunStatus(), "a", NOW))
    running = with_attempt(waiting, "b", LATER)
    assert status_patch(waiting, running) == {
        "phase": "Running",
        "attempts": 2,
        "assignee": "b",
        "nextAttemptTime": None,
    }
    assert status_patch(running, running) == {}
