"""The table of writes, and what an armed point does."""

from __future__ import annotations

import asyncio
import json
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from astrabox_scheduler_crds.run import RunStatus
from astrabox_scheduler_crds.transitions import (
    RetryPolicy,
    status_patch,
    with_attempt,
    with_exhaustion,
    with_failure,
    with_release,
    with_session,
    with_turn,
)
from tests.faults.stage.points import Points, UnnamedWriteError, check_action, check_point, name_of

OURS = "/apis/scheduler.astrabox.io/v1/namespaces/n"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/n/leases"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
QUEUED = RunStatus()
BEGUN = with_attempt(QUEUED, "host", NOW)
SESSION = with_session(BEGUN, "s")
FAILED = with_failure(BEGUN, "x", permanent=False, policy=RetryPolicy(), now=NOW)


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        (QUEUED, BEGUN, "attempt-begun"),
        (BEGUN, with_attempt(BEGUN, "another", NOW), "attempt-begun"),
        (FAILED, with_attempt(FAILED, "host", NOW), "attempt-begun"),
        (BEGUN, SESSION, "session-saved"),
        (SESSION, with_turn(SESSION, "t", None, NOW), "turn-saved"),
        (BEGUN, FAILED, "failure-saved"),
        (BEGUN, with_failure(BEGUN, "x", permanent=True, policy=RetryPolicy(), now=NOW), "failure-saved"),
        (FAILED, with_exhaustion(FAILED, NOW), "failure-saved"),
        (BEGUN, with_release(BEGUN), "attempt-released"),
        (BEGUN, with_release(BEGUN, called=False), "attempt-released"),
    ],
)
def test_every_transition_has_a_name(before: RunStatus, after: RunStatus, name: str) -> None:
    body = json.dumps({"status": status_patch(before, after), "metadata": {"resourceVersion": "1"}})
    assert name_of("PATCH", f"{OURS}/runinvocations/r/status", body.encode()) == name


DELETED = "scheduler.astrabox.io/deleted"
ASSIGNEE = "scheduler.astrabox.io/assignee"
HELD = {"spec": {"holderIdentity": "h"}, "metadata": {"labels": {}}}


@pytest.mark.parametrize(
    ("method", "path", "body", "name"),
    [
        ("POST", f"{OURS}/runinvocations", {}, "run-created"),
        ("DELETE", f"{OURS}/runinvocations/r", {}, "run-deleted"),
        ("PATCH", f"{OURS}/runinvocations/r/status", {"status": {"phase": "Cancelled"}}, "run-cancelled"),
        ("PATCH", f"{OURS}/runinvocations/r", {"metadata": {"labels": {ASSIGNEE: "h"}}}, "run-adopted"),
        ("PATCH", f"{OURS}/runinvocations/r", {"metadata": {"labels": {ASSIGNEE: None}}}, "run-released"),
        ("POST", f"{OURS}/deploymentschedules", {}, "schedule-created"),
        (
            "PATCH",
            f"{OURS}/deploymentschedules/s",
            {"metadata": {"labels": {DELETED: None}}},
            "schedule-updated",
        ),
        (
            "PATCH",
            f"{OURS}/deploymentschedules/s",
            {"metadata": {"labels": {DELETED: "t"}}},
            "schedule-deleted",
        ),
        ("POST", f"{OURS}/deploymentschedules", {"metadata": {"labels": {DELETED: "t"}}}, "schedule-deleted"),
        ("PATCH", f"{OURS}/deploymentschedules/s/status", {}, "schedule-status"),
        ("DELETE", f"{OURS}/deploymentschedules/s", {}, "schedule-removed"),
        ("POST", LEASES, {}, "lease-created"),
        ("PUT", f"{LEASES}/l", HELD, "lease-renewed"),
        ("PUT", f"{LEASES}/l", {"spec": {}, "metadata": {}}, "lease-released"),
        (
            "PUT",
            f"{LEASES}/l",
            HELD | {"metadata": {"labels": {"scheduler.astrabox.io/draining": "true"}}},
            "lease-draining",
        ),
        ("DELETE", f"{LEASES}/l", {}, "lease-deleted"),
        ("POST", "/apis/events.k8s.io/v1/namespaces/n/events", {}, "event"),
        ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {}, "access-review"),
    ],
)
def test_every_write_has_a_name(method: str, path: str, body: Any, name: str) -> None:
    assert name_of(method, path, json.dumps(body).encode()) == name
    assert check_point(f"before:{name}")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/v1/namespaces/n/pods", None),
        ("PUT", f"{OURS}/runinvocations/r", b"{}"),
        ("PATCH", f"{OURS}/runinvocations/r", b'{"metadata": {"annotations": {}}}'),
        ("PATCH", f"{OURS}/runinvocations/r/status", b'{"status": {"lastError": "x"}}'),
        ("DELETE", f"{OURS}/runinvocations/r/status", None),
    ],
)
def test_an_unknown_write_is_an_error(method: str, path: str, body: bytes | None) -> None:
    with pytest.raises(UnnamedWriteError):
        name_of(method, path, body)


@pytest.mark.parametrize("point", ["before:nothing", "during:event", "event", ""])
def test_an_unknown_point_cannot_be_armed(point: str) -> None:
    with pytest.raises(ValueError, match="there is no point"):
        check_point(point)


@pytest.mark.parametrize("action", ["kil", "kill:0", "kill:", "wait ", "wait-connect"])
def test_an_unknown_action_cannot_be_armed(action: str) -> None:
    with pytest.raises(ValueError, match="is none of"):
        check_action(action)


async def test_the_third_passage_waits_once_until_it_is_released(tmp_path: Path) -> None:
    points = Points(tmp_path)
    (tmp_path / "before.event").write_text("wait:3")
    await points.passing("before:event")
    await points.passing("after:event")
    await points.passing("before:event")
    held = asyncio.create_task(points.passing("before:event"))
    await asyncio.sleep(0.05)
    assert not held.done()
    assert (tmp_path / "before.event.reached").exists()
    (tmp_path / "before.event.release").touch()
    await held
    await points.passing("before:event")
    actions = [json.loads(line)["action"] for line in (tmp_path / "points.jsonl").read_text().splitlines()]
    assert actions == ["wait", "released"]


async def test_connections_are_open_before_the_point_is_reached(tmp_path: Path) -> None:
    points = Points(tmp_path)
    (tmp_path / "before.event").write_text("wait-connected")
    opened, asked = asyncio.Event(), asyncio.Event()

    async def connect() -> None:
        asked.set()
        await opened.wait()

    held = asyncio.create_task(points.passing("before:event", connect))
    await asked.wait()
    assert not (tmp_path / "before.event.reached").exists()
    opened.set()
    (tmp_path / "before.event.release").touch()
    await held
    actions = [json.loads(line)["action"] for line in (tmp_path / "points.jsonl").read_text().splitlines()]
    assert actions == ["wait", "released"], "the timeline knows one kind of waiting"


async def test_no_connections_are_opened_for_others(tmp_path: Path) -> None:
    points = Points(tmp_path)
    (tmp_path / "before.event").write_text("wait")
    (tmp_path / "before.event.release").touch()

    async def connect() -> None:
        raise AssertionError("not asked for")

    await points.passing("before:event", connect)
    await points.passing("before:event", connect)


def test_of_two_threads_one_claims_the_point(tmp_path: Path) -> None:
    points = Points(tmp_path)
    (tmp_path / "before.event").write_text("wait")
    (tmp_path / "before.event.release").touch()
    threads = [threading.Thread(target=lambda: asyncio.run(points.passing("before:event"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len((tmp_path / "points.jsonl").read_text().splitlines()) == 2
