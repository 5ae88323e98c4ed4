"""What stays of a schedule that AstraBox has deleted: for a while the object itself, as its own tombstone.

Another process may hold a list of AstraBox that was read before the deletion, and be about to create
what it finds missing. It meets the tombstone under the very name that it wants to create, and the name
is the lock: whichever of the two is stored first, the other one finds it and decides anew. So there is
no moment between a check and a write, and nothing is left to whether a process lives to look again.
A tombstone is disabled, so it fires nothing, and it has no payload: the prompt is gone at once.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Final

from astrabox_scheduler_crds.labels import (
    APPLIED_AT_ANNOTATION,
    DELETED_LABEL,
    DEPLOYMENT_LABEL,
    GIVEN_AT_ANNOTATION,
)
from astrabox_scheduler_crds.metadata import ObjectMeta, utc_text
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec
from astrabox_scheduler_crds.timeline import next_change

DELETED_KEPT: Final = timedelta(minutes=15)
"""So long a tombstone stays: longer than a reconcile may go on writing from one list."""
NO_PAYLOAD: Final = "{}"
_NEVER_USED: Final = ("0 0 1 1 *", "UTC")


def deleted(deployment_id: str, stored: DeploymentSchedule | None, now: datetime) -> DeploymentSchedule:
    """The tombstone to write on top of `stored`, or in its place where there is none; `now` is aware UTC.

    The expression and the zone stay, for people who look at it; no earlier rule does.
    """
    old = stored.metadata if stored is not None else ObjectMeta(name=deployment_key(deployment_id))
    cron, zone = (stored.spec.cron, stored.spec.time_zone) if stored is not None else _NEVER_USED
    return DeploymentSchedule(
        metadata=old.changed(
            labels={**old.labels, DEPLOYMENT_LABEL: old.name, DELETED_LABEL: "true"},
            annotations={**old.annotations, APPLIED_AT_ANNOTATION: utc_text(now)},
        ),
        spec=ScheduleSpec(
            deployment_id=deployment_id,
            cron=cron,
            time_zone=zone,
            enabled=False,
            payload=NO_PAYLOAD,
            active_since=next_change(stored, now),
        ),
    )


def is_deleted(schedule: DeploymentSchedule) -> bool:
    """Whether it is a tombstone. One that somebody has given a payload, or enabled, by hand is none."""
    spec = schedule.spec
    return bears_tombstone(schedule.metadata.labels, enabled=spec.enabled, payload=spec.payload)


def bears_tombstone(labels: Mapping[str, str], *, enabled: bool, payload: str | None) -> bool:
    """The same by its parts."""
    return DELETED_LABEL in labels and not enabled and payload == NO_PAYLOAD


def alive(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels of the same object when it is a schedule again."""
    return {name: value for name, value in labels.items() if name != DELETED_LABEL}


def applied_at(metadata: ObjectMeta) -> datetime | None:
    """When a provider last wrote it (API server time); None where the mark is missing or no time."""
    return _marked(metadata, APPLIED_AT_ANNOTATION)


def given_at(metadata: ObjectMeta) -> datetime | None:
    """When the command was given whose state it is (API server time); None as above."""
    return _marked(metadata, GIVEN_AT_ANNOTATION)


def _marked(metadata: ObjectMeta, annotation: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(metadata.annotations.get(annotation, ""))
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def may_go(tombstone: DeploymentSchedule, now: datetime) -> bool:
    """Whether no list that is older than the deletion can be written from any more.

    A time far in the future was written by hand, and keeps nothing.
    """
    at = applied_at(tombstone.metadata)
    return at is None or abs(now - at) >= DELETED_KEPT
