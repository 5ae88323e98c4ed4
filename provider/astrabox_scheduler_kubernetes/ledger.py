"""Rows of the run history, as AstraBox reads them, out of stored runs."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from astrabox_scheduler_crds.payload import PayloadError, decode_payload
from astrabox_scheduler_crds.run import Phase, RunInvocation
from astrabox_scheduler_kubernetes.seam import RunStatus, ScheduledRun

MAX_LIMIT: Final = 200
_LAST_OF_SECOND: Final = timedelta(microseconds=999_999)
_STATUS: Final[dict[str, RunStatus]] = {
    Phase.QUEUED: "queued",
    Phase.SUCCEEDED: "completed",
    Phase.FAILED: "failed",
    Phase.CANCELLED: "cancelled",
}


def newest_first(runs: Iterable[RunInvocation], limit: int) -> list[ScheduledRun]:
    """The newest runs as rows; `limit` is clamped to 1..200."""
    return [row(run) for run in sorted(runs, key=_age, reverse=True)[: clamped(limit)]]


def clamped(limit: int) -> int:
    """Within 1..200."""
    return min(max(limit, 1), MAX_LIMIT)


def row(run: RunInvocation) -> ScheduledRun:
    """One run as AstraBox lists it.

    A stored payload that is not readable (written by hand) shows as empty, with an error that says
    so; an unknown phase (a newer version's) as running.
    """
    spec, status = run.spec, run.status
    shown: RunStatus = _STATUS.get(status.phase, "running")
    error = None if shown in ("queued", "completed") else status.last_error
    payload: dict[str, Any] = {}
    try:
        payload = decode_payload(spec.payload)
    except PayloadError as unreadable:
        error = error or str(unreadable)
    return ScheduledRun(
        run_id=run.metadata.name,
        deployment_id=spec.deployment_id,
        trigger=spec.trigger,
        status=shown,
        scheduled_for=spec.due_time,
        payload=payload,
        session_id=status.session_id,
        turn_id=status.turn_id,
        error=error,
        created_at=created_at(run),
        replayed_from_run_id=spec.replayed_from,
    )


def _age(run: RunInvocation) -> tuple[datetime, datetime, str]:
    created, by = created_at(run), run.spec.created_by
    return created, by.at if by is not None else created, run.metadata.name


def created_at(run: RunInvocation) -> datetime:
    """When it was created, aware UTC: the store's whole second, refined by the creator's own time."""
    created = run.metadata.creation_timestamp or datetime.fromtimestamp(0, UTC)
    if run.spec.created_by is None:
        return created
    return min(max(run.spec.created_by.at, created), created + _LAST_OF_SECOND)
