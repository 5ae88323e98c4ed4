"""One run, or one schedule, in the order of events: times, names and ids, and nothing of a payload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.faults.history.due import text
from tests.faults.history.facts import Call, Command, History, Violation, Write
from tests.faults.history.objects import field, seconds
from tests.faults.history.rules import SCHEDULES
from tests.faults.history.runs import RUNS

_SHOWN = ("phase", "attempts", "releases", "assignee", "sessionId", "turnId", "nextAttemptTime")
_OF_SPEC = ("cron", "timeZone", "enabled", "activeSince", "trigger", "dueTime", "replayedFrom")
_MAX_TEXT = 120
_ASSIGNEE = "scheduler.astrabox.io/assignee"

Event = tuple[float, str]


def timeline(history: History, run_id: str | None = None, deployment_id: str | None = None) -> str:
    """The events of a run, or of a Deployment's schedule, and of all processes while they last.

    Times are seconds since the due time of a scheduled run, else since the first event.
    """
    own = sorted(_of_run(history, run_id) if run_id else _of_deployment(history, deployment_id))
    if not own:
        return "nothing is known of it"
    zero = _due(history, run_id) or own[0][0]
    begin, end = min(own[0][0], zero), own[-1][0]
    around = [event for event in _of_all(history) if begin - 30 <= event[0] <= end + 30]
    title = f"run {run_id}" if run_id else f"schedule of {deployment_id}"
    since = f"its due time {text(zero)}" if _due(history, run_id) else "its first event"
    events = sorted([*own, *around])
    return "\n".join(
        [f"{title}, seconds since {since}", *(f"{at - zero:+10.2f}  {told}" for at, told in events)]
    )


def timeline_of(history: History, violation: Violation) -> str:
    """That of the run that a violation names, else of its Deployment."""
    return timeline(history, violation.run_id, violation.deployment_id)


def _due(history: History, run_id: str | None) -> float | None:
    if run_id is None:
        return None
    told = [field(history.runs.get(run_id), "spec", "dueTime")]
    told += [field(write.after, "spec", "dueTime") for write in _writes(history, RUNS, run_id)]
    return next((at for each in told if (at := seconds(each)) is not None), None)


def _of_run(history: History, run_id: str) -> Iterator[Event]:
    for write in _writes(history, RUNS, run_id):
        yield write.received, _write(write)
    for call in history.calls:
        if call.run_id == run_id:
            yield from _call(call)
    for command in history.commands:
        if run_id in (command.run_id, command.replayed_from):
            yield from _command(command)
    final = history.runs.get(run_id)
    if final is not None:
        yield history.ended, f"at the end      {_status(field(final, 'status') or {})}"


def _of_deployment(history: History, deployment_id: str | None) -> Iterator[Event]:
    if deployment_id is None:
        return
    for command in history.commands:
        listed = any(each.get("deployment_id") == deployment_id for each in command.given)
        if command.deployment_id == deployment_id or listed:
            yield from _command(command)
    names = {
        write.name
        for write in history.writes
        if write.resource == SCHEDULES and field(write.after, "spec", "deploymentId") == deployment_id
    }
    for name in names:
        for write in _writes(history, SCHEDULES, name):
            if not write.subresource:
                yield write.received, _write(write)


def _of_all(history: History) -> Iterator[Event]:
    for life in history.lives:
        who = f"{life.role} {life.name} ({life.pid})"
        yield life.begun, f"{who} begins"
        if life.ready is not None:
            yield life.ready, f"{who} is ready"
        if life.asked_to_end is not None:
            yield life.asked_to_end, f"{who} is asked to end"
        if life.ended is not None:
            yield life.ended, f"{who} ends with code {life.code}"
        for what, spans in (("frozen", life.frozen), ("hindered", life.hindered)):
            for begin, end in spans:
                yield begin, f"{who} is {what}"
                yield end, f"{who} is no longer {what}"
    for outage in history.outages:
        yield outage.begun, f"{outage.what} is away"
        yield outage.ended, f"{outage.what} is back"
    for at, note in history.notes:
        yield at, f"note: {note}"


def _writes(history: History, resource: str, name: str) -> Iterable[Write]:
    return (write for write in history.writes if write.resource == resource and write.name == name)


def _write(write: Write) -> str:
    path = f"{write.verb} {write.subresource or write.resource}"
    took = "" if write.completed is None else f" in {write.completed - write.received:.2f} s"
    outcome = "no answer" if write.code is None else f"{write.code}{took}"
    return f"{write.by:<15} {path}: {outcome}{_told(write)}"


def _told(write: Write) -> str:
    """What it says, but for the payload."""
    if write.after is None:
        return ""
    if write.subresource:
        parts = [_status(field(write.after, "status") or {})]
    elif write.verb == "patch" and write.resource == RUNS:
        parts = [f"assignee={field(write.after, 'metadata', 'labels', _ASSIGNEE)}"]
    else:
        spec = field(write.after, "spec") or {}
        parts = [f"{name}={spec[name]}" for name in _OF_SPEC if name in spec]
    told = " ".join(part for part in parts if part)
    return f"  {told}" if told else ""


def _status(status: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={status[name]}" for name in _SHOWN if name in status)


def _call(call: Call) -> Iterator[Event]:
    who = f"{call.host:<15} {call.step}"
    yield call.begun, f"{who} begins" + (f" with {call.session_id}" if call.session_id else "")
    if call.ended is not None:
        outcome = f"failed: {call.error.partition(':')[0]}" if call.error else f"answered {call.result}"
        yield call.ended, f"{who} {outcome} after {call.ended - call.begun:.2f} s"


def _command(command: Command) -> Iterator[Event]:
    schedule = command.schedule or {}
    told = " ".join(
        f"{name}={schedule[name]}" for name in ("cron", "timezone", "enabled") if name in schedule
    )
    who = f"{command.host:<15} {command.op}"
    yield command.sent, f"{who} is asked {told}".rstrip()
    if command.returned is not None:
        yield command.returned, f"{who} answers {(command.error or 'done')[:_MAX_TEXT]}"
