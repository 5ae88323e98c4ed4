"""Named points before and after every write of the product, where a test may end or hold a process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})
LOG = "points.jsonl"
_POLL_SECONDS = 0.01
_ASSIGNEE = "scheduler.astrabox.io/assignee"
_DELETED = "scheduler.astrabox.io/deleted"
_DRAINING = "scheduler.astrabox.io/draining"
_PATH = re.compile(
    r"/apis/(?P<group>[^/]+)/[^/]+(?:/namespaces/[^/]+)?/(?P<plural>[^/]+)(?:/[^/]+(?:/(?P<sub>[^/]+))?)?"
)
_PLAIN = {
    ("POST", "runinvocations", ""): "run-created",
    ("DELETE", "runinvocations", ""): "run-deleted",
    ("DELETE", "deploymentschedules", ""): "schedule-removed",
    ("PATCH", "deploymentschedules", "status"): "schedule-status",
    ("POST", "leases", ""): "lease-created",
    ("DELETE", "leases", ""): "lease-deleted",
    ("POST", "events", ""): "event",
    ("POST", "selfsubjectaccessreviews", ""): "access-review",
}
_OF_SCHEDULES = {"POST": "schedule-created", "PATCH": "schedule-updated"}
_OF_PHASE = {
    "Succeeded": "turn-saved",
    "Failed": "failure-saved",
    "Retrying": "failure-saved",
    "Cancelled": "run-cancelled",
}
NAMES = frozenset(_PLAIN.values()) | {
    *_OF_PHASE.values(),
    *_OF_SCHEDULES.values(),
    "schedule-deleted",
    *("attempt-begun", "attempt-released", "session-saved"),
    *("run-released", "run-adopted"),
    *("lease-renewed", "lease-draining", "lease-released"),
}
"""Of every write. A stop leaves a run by `attempt-released` (its status) and `run-released` (its label).

A delete by AstraBox writes a mark (`schedule-deleted`); the object goes later (`schedule-removed`).
"""
STEPS = frozenset({"start_session", "admit_turn"})
"""Calls of AstraBox's handler, which have points as well."""
Connect = Callable[[], Awaitable[None]]


class UnnamedWriteError(Exception):
    """The product writes something that `name_of` does not know."""


def name_of(method: str, path: str, body: bytes | None) -> str:
    """The name of a write. Raises UnnamedWriteError."""
    found = _PATH.fullmatch(path)
    if found is None:
        raise UnnamedWriteError(f"{method} {path}")
    plural, sub = found["plural"], found["sub"] or ""
    name = _PLAIN.get((method, plural, sub))
    if name is None:
        content: Mapping[str, Any] = json.loads(body or b"{}")
        if (method, plural, sub) == ("PATCH", "runinvocations", "status"):
            name = _of_status(content.get("status") or {})
        elif (method, plural, sub) == ("PATCH", "runinvocations", ""):
            name = _of_labels(content)
        elif (plural, sub) == ("deploymentschedules", "") and method in _OF_SCHEDULES:
            name = _of_schedule(method, content)
        elif (method, plural, sub) == ("PUT", "leases", ""):
            name = _of_lease(content)
    if name is None:
        raise UnnamedWriteError(f"{method} {path}")
    return name


def _of_status(status: Mapping[str, Any]) -> str | None:
    if "releases" in status:
        return "attempt-released"
    phase = status.get("phase")
    if phase in _OF_PHASE:
        return _OF_PHASE[phase]
    if "attempts" in status:
        return "attempt-begun"
    return "session-saved" if "sessionId" in status else None


def _of_labels(patch: Mapping[str, Any]) -> str | None:
    labels = (patch.get("metadata") or {}).get("labels") or {}
    if _ASSIGNEE not in labels:
        return None
    return "run-released" if labels[_ASSIGNEE] is None else "run-adopted"


def _of_schedule(method: str, content: Mapping[str, Any]) -> str:
    labels = (content.get("metadata") or {}).get("labels") or {}
    return "schedule-deleted" if labels.get(_DELETED) is not None else _OF_SCHEDULES[method]


def _of_lease(lease: Mapping[str, Any]) -> str:
    if not lease.get("spec", {}).get("holderIdentity"):
        return "lease-released"
    labels = lease.get("metadata", {}).get("labels") or {}
    return "lease-draining" if _DRAINING in labels else "lease-renewed"


def check_point(point: str) -> str:
    """`point` if there is one of this name. Raises ValueError."""
    side, _, name = point.partition(":")
    if side not in ("before", "after") or name not in NAMES | STEPS:
        raise ValueError(
            f"there is no point {point!r}; after before: or after: one of {sorted(NAMES | STEPS)}"
        )
    return point


def check_action(action: str) -> str:
    """`action` if there is one of this name. Raises ValueError."""
    if not re.fullmatch(r"(kill|term|stop|wait|wait-connected)(:[1-9]\d*)?", action):
        raise ValueError(
            f"{action!r} is none of kill, term, stop, wait, wait-connected, nor such a one with a count,"
            " as kill:3"
        )
    return action


def armed_file(folder: Path, point: str) -> Path:
    """Where a point is armed."""
    return folder / point.replace(":", ".")


class Points:
    """The process's side: passes points, and does at an armed one what its file says, once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._passed: Counter[str] = Counter()

    async def passing(self, point: str, connect: Connect | None = None) -> None:
        """Do what is armed here, nothing otherwise; `connect` opens connections that nobody uses."""
        armed = armed_file(self._folder, point)
        try:
            action, _, count = armed.read_text().partition(":")
        except FileNotFoundError:
            self._passed.pop(point, None)
            return
        self._passed[point] += 1
        if self._passed[point] < int(count or 1):
            return
        if action == "wait-connected":
            assert connect is not None, f"{point} is not before a write"
            await connect()
            action = "wait"
        reached = armed.with_name(f"{armed.name}.reached")
        try:
            armed.rename(reached)
        except FileNotFoundError:
            return  # another thread was faster
        self.log(point, action)
        try:
            await self._act(action, armed.with_name(f"{armed.name}.release"))
        finally:
            if action == "wait":  # released, or cancelled by its caller's time limit
                self.log(point, "released")

    async def _act(self, action: str, release: Path) -> None:
        match action:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "term":
                os.kill(os.getpid(), signal.SIGTERM)
            case "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "wait":
                while not release.exists():  # noqa: ASYNC110, ASYNC240 - another process makes the file
                    await asyncio.sleep(_POLL_SECONDS)

    def log(self, point: str, action: str, **more: Any) -> None:
        """Append a line that tells what happens now, by the monotonic clock of the machine."""
        entry = {"monotonic": time.monotonic(), "pid": os.getpid(), "point": point, "action": action}
        with (self._folder / LOG).open("ab", buffering=0) as file:
            file.write(json.dumps(entry | more).encode() + b"\n")
