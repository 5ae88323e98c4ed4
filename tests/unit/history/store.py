"""The API server's part in a story: what each write leaves, and what is there at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from tests.faults.history.facts import Write


def iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat().replace("+00:00", "Z")


def whole(writes: Sequence[Write]) -> list[Write]:
    """The writes with whole objects: what each says, on top of what was there."""
    stored: dict[tuple[str, str], Any] = {}
    found = []
    for write in sorted(writes, key=lambda each: each.received):
        key, after = (write.resource, write.name), write.after
        if write.verb == "delete" and write.succeeded:
            stored.pop(key, None)
        elif after is not None:
            second = iso(float(int(write.received)))
            new = {"metadata": {"creationTimestamp": second}, "status": {"phase": "Queued"}}
            before = new if write.verb == "create" else stored.get(key, new)
            after = stored[key] = merged(before, after)
        found.append(replace(write, after=after))
    return found


def merged(value: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(value) if isinstance(value, Mapping) else {}
    for key, new in patch.items():
        if new is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), new)
    return result


def objects_of(writes: list[Write], resource: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for write in writes:
        if write.resource == resource and write.verb == "delete" and write.succeeded:
            found.pop(write.name, None)
        elif write.resource == resource and write.after is not None:
            found[write.name] = json.loads(json.dumps(write.after))
    return found
