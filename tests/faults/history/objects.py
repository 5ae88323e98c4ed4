"""Reading objects of the API server, and comparing payloads to the last digit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from tests.faults.history.facts import Write

FINISHED = frozenset({"Succeeded", "Failed", "Cancelled"})
_NO_ERROR_OF_THE_REQUEST = frozenset({*range(200), 499})
"""What is noted when the client is gone before its answer is written."""
_SERVER_ERROR = 500


def field(value: Any, *path: str) -> Any:
    """The value at `path`, None where there is none."""
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value


def seconds(text: object) -> float | None:
    """RFC 3339 text as seconds since the epoch; None if it is no time."""
    if not isinstance(text, str):
        return None
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        return None
    return instant.replace(tzinfo=instant.tzinfo or UTC).timestamp()


def exact(value: Any) -> str:
    """Text that differs for 1 and 1.0, for 1 and true, and for another order of keys."""
    return json.dumps(value, default=dict)


def exact_text(text: object) -> str | None:
    """The same of stored payload text; None if it is no JSON."""
    if not isinstance(text, str):
        return None
    try:
        return exact(json.loads(text))
    except ValueError:
        return None


def unknown(write: Write) -> bool:
    """Whether it may have been carried out without anybody saying so: no answer, or a server's fault."""
    code = write.code
    return code is None or code >= _SERVER_ERROR or code in _NO_ERROR_OF_THE_REQUEST


def may_have_acted(write: Write) -> bool:
    """Whether it was carried out, or may have been."""
    return write.succeeded or unknown(write)


def in_order(writes: Sequence[Write]) -> list[Write]:
    """Writes of one object in the order in which they were carried out.

    The version in an answer tells it, which is the store's revision. A write without one stands behind
    those that were received before it.
    """
    known = sorted((write.received, version) for write in writes if (version := _version(write)) is not None)

    def place(write: Write) -> tuple[int, bool, float]:
        version = _version(write)
        if version is not None:
            return version, False, write.received
        return max((each for at, each in known if at <= write.received), default=0), True, write.received

    return sorted(writes, key=place)


def _version(write: Write) -> int | None:
    version = field(write.after, "metadata", "resourceVersion") if write.succeeded else None
    return int(version) if isinstance(version, str) and version.isdigit() else None
