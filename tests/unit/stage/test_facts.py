"""How logs that kills have cut become facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.faults.stage.audit import audit_events, read_writes
from tests.faults.stage.clock import Clock, ClockError, find_library
from tests.faults.stage.records import epoch, read_calls
from tests.faults.stage.revisions import Version

KEY = ("runinvocations", 7)


def event(audit_id: str, stage: str, **more: Any) -> dict[str, Any]:
    reference = {"resource": "runinvocations", "namespace": "n", "name": "r"}
    fields = {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "auditID": audit_id,
        "stage": stage,
        "verb": "patch",
        "requestURI": "/apis/x",
        "user": {"username": "system:serviceaccount:n:host-1"},
        "objectRef": reference,
        "requestReceivedTimestamp": "2026-01-01T00:00:00.250000Z",
        "stageTimestamp": "2026-01-01T00:00:00.500000Z",
    }
    return fields | more


def line(item: dict[str, Any]) -> str:
    return json.dumps(item, separators=(",", ":"))


def answered(audit_id: str, code: int = 200, version: str = "7") -> dict[str, Any]:
    return event(
        audit_id,
        "ResponseComplete",
        responseStatus={"code": code},
        responseObject={"metadata": {"resourceVersion": version}},
    )


def test_a_line_that_was_cut_takes_no_other_with_it() -> None:
    first, second = event("1", "RequestReceived"), event("2", "RequestReceived")
    cut = line(event("3", "RequestReceived"))[:60]
    assert list(audit_events([line(first), cut + line(second), cut, ""])) == [first, second]


def test_stages_are_joined_and_told_with_the_version_they_made(tmp_path: Path) -> None:
    lines = [
        event("1", "RequestReceived"),
        answered("1"),
        event(
            "2", "RequestReceived", verb="create", objectRef={"resource": "runinvocations", "namespace": "n"}
        ),
        event("3", "ResponseComplete", requestURI="/x?dryRun=All", responseStatus={"code": 201}),
        event("4", "ResponseComplete", objectRef={"resource": "leases", "namespace": "other", "name": "l"}),
        answered("5", code=409),
    ]
    (tmp_path / "audit.log").write_text("\n".join(map(line, lines)) + "\n")
    versions = {
        KEY: Version("runinvocations", "r", 7, {"status": 1}, created=False),
        ("runinvocations", 8): Version("runinvocations", "new", 8, {"status": 2}, created=True),
    }
    one, unheard, refused = read_writes(tmp_path, 0, "n", versions)
    assert (one.by, one.name, one.code, one.after) == ("host-1", "r", 200, {"status": 1})
    assert one.completed is not None
    assert one.completed - one.received == 0.25
    assert (unheard.completed, unheard.code, unheard.name, unheard.after) == (
        None,
        None,
        "new",
        {"status": 2},
    )
    assert (refused.code, refused.after, refused.succeeded) == (409, None, False)


def test_a_write_that_was_answered_with_a_server_error_may_have_been_carried_out(tmp_path: Path) -> None:
    """etcd came back a moment too late for the answer, and the write was stored."""

    def failed(audit_id: str, **status: Any) -> dict[str, Any]:
        sent = {"status": status, "metadata": {"resourceVersion": "6"}}
        reference = {"resource": "runinvocations", "namespace": "n", "name": "r", "subresource": "status"}
        code = {"code": 504}
        return event(
            audit_id, "ResponseComplete", responseStatus=code, requestObject=sent, objectRef=reference
        )

    lines = [
        failed("1", phase="Retrying", attempts=1),
        failed("2", phase="Running", attempts=1, nextAttemptTime=None),
        failed("3", phase="Running", attempts=1),
    ]
    (tmp_path / "audit.log").write_text("\n".join(map(line, lines)) + "\n")
    stored = {"status": {"phase": "Running", "attempts": 1, "assignee": "a"}}
    versions = {KEY: Version("runinvocations", "r", 7, stored, created=False)}
    other, carried_out, too_late = read_writes(tmp_path, 0, "n", versions)
    assert (other.after, carried_out.after, too_late.after) == (None, stored, None)
    assert (carried_out.code, carried_out.succeeded) == (504, False)


@pytest.mark.parametrize("code", [0, 201, 499, 504])
def test_a_create_whose_client_was_killed_before_the_answer_is_told_by_its_object(
    tmp_path: Path, code: int
) -> None:
    """The log has a code, but no object that was answered; etcd has the run, without the status sent."""
    reference = {"resource": "runinvocations", "namespace": "n"}
    cut = event("1", "ResponseComplete", verb="create", objectRef=reference, responseStatus={"code": code})
    cut["requestObject"] = {"spec": {"trigger": "manual"}, "status": {"phase": "Queued"}}
    (tmp_path / "audit.log").write_text(line(cut) + "\n")
    made = {"spec": {"trigger": "manual"}}
    versions = {KEY: Version("runinvocations", "new", 7, made, created=True)}
    (write,) = read_writes(tmp_path, 0, "n", versions)
    assert (write.name, write.after) == ("new", made)


def test_calls_are_told_in_true_time_whatever_the_hosts_clock_says(tmp_path: Path) -> None:
    entry = {
        "host": "host-1",
        "pid": 1,
        "call": "start_session",
        "run_id": "r",
        "deployment_id": "d",
        "trigger": "manual",
        "scheduled_for": None,
        "replayed_from_run_id": None,
        "session_id": None,
        "t": 5,
    }
    lines = [
        entry | {"phase": "begin", "monotonic": 1.0, "payload": {"a": 1}},
        entry | {"phase": "end", "monotonic": 2.0, "session_id": "s"},
        entry | {"phase": "begin", "monotonic": 3.0, "payload": {"a": 1}},
    ]
    path = tmp_path / "calls"
    path.write_text("\n".join(map(json.dumps, lines)) + '\n{"cut')
    done, lost = read_calls(path)
    assert (done.result, done.payload, lost.ended) == ("s", {"a": 1}, None)
    assert done.begun == pytest.approx(epoch(1.0), abs=0.01)
    assert done.ended == pytest.approx(epoch(2.0), abs=0.01)


def test_a_missing_libfaketime_is_told_with_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.faults.stage.clock._LIBRARY", "none.so")
    with pytest.raises(ClockError, match="apt-get install libfaketime"):
        find_library()


def test_a_clock_is_moved_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.faults.stage.clock.find_library", lambda: Path("/lib.so"))
    clock, file = Clock.offset(-30), tmp_path / "clock"
    environment = clock.environment(file)
    assert environment["FAKETIME_TIMESTAMP_FILE"] == str(file)
    assert file.read_text() == "-30.000\n"
    clock.jump(86_400)
    assert file.read_text() == "+86400.000\n"
