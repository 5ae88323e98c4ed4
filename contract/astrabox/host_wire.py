"""How the stand-in host and its client speak: one JSON object a line, datetimes in ISO 8601 UTC."""

import dataclasses
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from astrabox.seams import scheduler as seam

LINE_LIMIT: Final = 16 * 2**20
"""Longest line in bytes."""

_ERRORS: Final[tuple[type[Exception], ...]] = (
    seam.SchedulerUnavailable,
    seam.InvalidSchedule,
    seam.ScheduleCapacityExceeded,
    seam.SchedulerConfigurationError,
    seam.SchedulerError,
)


class HostError(Exception):
    """The host has failed in a way that the contract does not know; ``kind`` names the error there."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


def line(message: Mapping[str, Any]) -> bytes:
    """Return a message as it is sent."""
    return json.dumps(message, default=dict).encode() + b"\n"


def timestamp(instant: datetime | None) -> str | None:
    """Return an aware datetime as ISO 8601 text in UTC."""
    return None if instant is None else instant.astimezone(UTC).isoformat()


def error_to_wire(error: Exception) -> dict[str, str]:
    """Return an error's type name and text."""
    return {"type": type(error).__name__, "message": str(error)}


def error_from_wire(error: Mapping[str, str]) -> Exception:
    """Return the contract's error of that name, or a `HostError`."""
    for known in _ERRORS:
        if known.__name__ == error["type"]:
            return known(error["message"])
    return HostError(error["type"], error["message"])


def result_of(text: bytes | str) -> Any:
    """Return the result that an answer's line holds; raises the error that it holds instead."""
    answer = json.loads(text)
    if not answer["ok"]:
        raise error_from_wire(answer["error"])
    return answer["result"]


def schedule_to_wire(rule: seam.Schedule) -> dict[str, Any]:
    """Return a Schedule's fields by name."""
    return {field.name: getattr(rule, field.name) for field in dataclasses.fields(rule)}


def schedule_from_wire(fields: Mapping[str, Any]) -> seam.Schedule:
    """Return the Schedule of these fields; ``enabled`` may be left out."""
    return seam.Schedule(**{"enabled": True, **fields})


def run_to_wire(run: seam.ScheduledRun) -> dict[str, Any]:
    """Return a run's fields by name, datetimes as text."""
    fields = {field.name: getattr(run, field.name) for field in dataclasses.fields(run)}
    return fields | {
        "scheduled_for": timestamp(run.scheduled_for),
        "created_at": timestamp(run.created_at),
    }


def run_from_wire(fields: Mapping[str, Any]) -> seam.ScheduledRun:
    """Return the run of these fields."""
    due, created = fields["scheduled_for"], fields["created_at"]
    return seam.ScheduledRun(
        **{
            **fields,
            "scheduled_for": None if due is None else datetime.fromisoformat(due),
            "created_at": datetime.fromisoformat(created),
        }
    )
