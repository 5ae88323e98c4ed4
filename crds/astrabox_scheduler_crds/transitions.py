"""States of a run and how they follow each other. Values only; nothing goes backwards.

Queued -> Running -> Succeeded | Failed
             |  ^
             v  |
           Retrying            Queued | Running without a Session -> Cancelled
"""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any

from astrabox_scheduler_crds.metadata import Condition, KubernetesModel, bounded, with_condition
from astrabox_scheduler_crds.run import FINISHED, Phase, RunStatus


class TransitionError(ValueError):
    """The run is in a state from which this step is not possible; somebody else has changed it."""


class Cancellation(Enum):
    """Why a run is not started any more: `reason` for machines, `message` for people."""

    NOBODY_THERE = (
        "NoAstraBoxProcess",
        "No AstraBox process was running at this due time, so it counts as missed.",
    )
    DISABLED = ("ScheduleDisabled", "The schedule was disabled or deleted before this run was started.")
    NOT_SAVED = (
        "NotSaved",
        "AstraBox was told that this run was not saved, so it is not started. Ask for it again.",
    )

    def __init__(self, reason: str, message: str) -> None:
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounded exponential backoff; attempts count the first one. Seconds."""

    max_attempts: int = 8
    first_delay: float = 2.0
    factor: float = 3.0
    max_delay: float = 300.0

    def delay(self, attempts: int) -> timedelta:
        """The wait after this number of attempts have failed."""
        exponent = min(max(attempts - 1, 0), 64)
        return timedelta(seconds=min(self.max_delay, self.first_delay * self.factor**exponent))

    def exhausted(self, status: RunStatus) -> bool:
        """Whether no attempt is left; those that an orderly stop handed over do not count."""
        return status.attempts - status.releases >= self.max_attempts


def with_attempt(status: RunStatus, assignee: str, now: datetime) -> RunStatus:
    """An attempt begins. Saved before the handler is called: a run that kills its process uses them up."""
    _require(status, {Phase.QUEUED, Phase.RUNNING, Phase.RETRYING})
    return status.changed(
        phase=Phase.RUNNING,
        attempts=status.attempts + 1,
        assignee=assignee,
        started_at=status.started_at or now,
        next_attempt_time=None,
    )


def with_session(status: RunStatus, session_id: str) -> RunStatus:
    """start_session answered. The Session id is set once; another one than the saved one is refused."""
    _require(status, {Phase.RUNNING})
    if status.session_id not in (None, session_id):
        raise TransitionError("the run has another Session already")
    return status.changed(session_id=session_id)


def with_turn(status: RunStatus, turn_id: str, command_id: str | None, now: datetime) -> RunStatus:
    """admit_turn answered: the run has succeeded."""
    _require(status, {Phase.RUNNING})
    if status.session_id is None:
        raise TransitionError("a turn needs a saved Session")
    return _finished(
        status.changed(turn_id=turn_id, command_id=command_id), Phase.SUCCEEDED, "TurnAdmitted", "", now
    )


def with_failure(
    status: RunStatus, error: str, *, permanent: bool, policy: RetryPolicy, now: datetime
) -> RunStatus:
    """An attempt failed: the run waits for the next one, or has failed for good."""
    _require(status, {Phase.RUNNING})
    status = status.changed(last_error=bounded(error), failures=status.failures + 1)
    if permanent:
        return _finished(status, Phase.FAILED, "PermanentError", error, now)
    if policy.exhausted(status):
        return _finished(status, Phase.FAILED, "RetriesExhausted", error, now)
    wait = policy.delay(status.attempts - status.releases)
    return status.changed(phase=Phase.RETRYING, next_attempt_time=now + wait)


def with_exhaustion(status: RunStatus, now: datetime) -> RunStatus:
    """A process was lost in the last attempt: no other is made."""
    _require(status, {Phase.RUNNING, Phase.RETRYING})
    lost = f"the process that ran it was lost in {status.losses} of {status.attempts} attempts"
    error = f"{lost}; before that: {status.last_error}" if status.last_error else lost
    return _finished(status.changed(last_error=bounded(error)), Phase.FAILED, "RetriesExhausted", error, now)


def with_release(status: RunStatus, *, called: bool = True) -> RunStatus:
    """An orderly stop hands the run over in the middle of an attempt, which then counts nothing.

    `called`: whether AstraBox was called in it. A run that never was waits as Retrying, and is not `started`.
    """
    _require(status, {Phase.RUNNING})
    phase = Phase.RUNNING if called else Phase.RETRYING
    return status.changed(phase=phase, releases=status.releases + 1)


def with_cancellation(status: RunStatus, why: Cancellation, now: datetime) -> RunStatus:
    """The run is not started any more; impossible once AstraBox has a Session for it."""
    _require(status, {Phase.QUEUED, Phase.RUNNING, Phase.RETRYING})
    if status.session_id is not None or (status.phase == Phase.RETRYING and status.started):
        raise TransitionError("a run that AstraBox was called for goes on")
    return _finished(status.changed(last_error=why.message), Phase.CANCELLED, why.reason, why.message, now)


def status_patch(old: KubernetesModel, new: KubernetesModel) -> dict[str, Any]:
    """The merge patch that turns `old` into `new`: changed fields only, null for one that was taken away."""
    return _merge_patch(old.to_dict(), new.to_dict())


def _merge_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            if inner := _merge_patch(old, value):
                patch[key] = inner
        elif old != value:
            patch[key] = value
    return patch


def _require(status: RunStatus, phases: Container[Phase | str]) -> None:
    if status.phase not in phases:
        raise TransitionError(f"the run is {status.phase}")


def _finished(status: RunStatus, phase: Phase, reason: str, message: str, now: datetime) -> RunStatus:
    assert phase in FINISHED
    conditions = status.conditions
    for kind in ("Finished", "Succeeded", "Failed"):
        holds = kind in ("Finished", phase.value)
        condition = Condition(
            type=kind,
            status="True" if holds else "False",
            reason=reason,
            message=bounded(message),
            observed_generation=1,  # the spec is immutable, so there is no other
            last_transition_time=now,
        )
        conditions = with_condition(conditions, condition)
    return status.changed(phase=phase, finished_at=now, next_attempt_time=None, conditions=conditions)
