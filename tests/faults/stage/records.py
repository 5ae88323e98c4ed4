"""What hosts and crash points have noted by the monotonic clock, told in seconds since the epoch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.faults.history.facts import Call, Command
from tests.faults.stage.journal import LifeSoFar
from tests.faults.stage.launch import RECONCILED
from tests.faults.stage.points import LOG


def epoch(monotonic: float) -> float:
    """A reading of the monotonic clock, which all processes share, as true seconds since the epoch."""
    return monotonic + (time.time() - time.monotonic())


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The JSON lines of a file; what a kill has cut is left out."""
    if path.exists():
        for line in path.read_bytes().split(b"\n"):
            try:
                yield json.loads(line)
            except ValueError:
                continue


def read_calls(path: Path) -> list[Call]:
    """The handler calls in one host's record, in order of their begin."""
    calls: list[Call] = []
    open_calls: dict[tuple[Any, ...], list[int]] = {}
    for line in read_lines(path):
        key = (line["pid"], line["call"], line["run_id"])
        if line["phase"] == "begin":
            open_calls.setdefault(key, []).append(len(calls))
            calls.append(_begun(line))
        elif waiting := open_calls.get(key):
            number = waiting.pop(0)
            calls[number] = _ended(calls[number], line)
    return calls


def read_points(folder: Path) -> list[dict[str, Any]]:
    """What the points of one process have logged; `at` is in true seconds."""
    return [line | {"at": epoch(line["monotonic"])} for line in read_lines(folder / LOG)]


def own_reconciles(lives: Iterable[LifeSoFar], points: Path) -> list[Command]:
    """The reconcile with which each host starts, as a command that it got."""
    commands = []
    for life in lives:
        for line in read_points(points / life.name):
            if line["action"] == RECONCILED and line["pid"] == life.pid:
                given = tuple(line["given"])
                commands.append(Command(life.name, "reconcile", line["at"], life.ready, given=given))
                break
    return commands


def _begun(line: dict[str, Any]) -> Call:
    return Call(
        host=line["host"],
        pid=line["pid"],
        step=line["call"],
        run_id=line["run_id"],
        deployment_id=line["deployment_id"],
        trigger=line["trigger"],
        scheduled_for=line["scheduled_for"],
        replayed_from=line["replayed_from_run_id"],
        session_id=line["session_id"],
        payload=line["payload"],
        begun=epoch(line["monotonic"]),
        ended=None,
    )


def _ended(call: Call, line: dict[str, Any]) -> Call:
    result = line.get("session_id") if call.step == "start_session" else line.get("turn_id")
    failed = line["phase"] == "error"
    fields = {name: getattr(call, name) for name in Call.__slots__}
    changes = {
        "ended": epoch(line["monotonic"]),
        "error": line["error"] if failed else None,
        "result": None if failed else result,
    }
    return Call(**(fields | changes))
