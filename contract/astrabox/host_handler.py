"""The stand-in host's run handler: idempotent, recorded in a file, steered by the payload."""

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from astrabox.host_wire import timestamp
from astrabox.seams.scheduler import AdmittedTurn, RunInvocation, RunPermanentError


class StagedFailureError(Exception):
    """A failure that the payload has asked for, worth a retry."""


class CallRecord:
    """An append-only file of JSON lines; several processes may share it."""

    def __init__(self, path: Path | None) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = None if path is None else os.open(path, flags, 0o644)

    def append(self, entry: dict[str, Any]) -> None:
        """Write one line by one write."""
        if self._file is not None:
            os.write(self._file, json.dumps(entry, default=dict).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


class HostHandler:
    """AstraBox's side of a run, without an agent.

    Session and turn ids follow from the run id, so that a repeated call returns what the first one
    did, in whatever process. The payload may say how a call is to behave::

        {"behaviour": {"start_session": "fail:2", "admit_turn": "hang:1.5", "host": "a"}}

    ``fail:N`` fails the first N calls of this run in this process; ``permanent`` fails for good;
    ``hang:SECONDS`` waits; ``block:SECONDS`` blocks the event loop; ``kill`` kills the process.
    With ``host``, only the host of that name behaves so.
    """

    def __init__(self, host: str, record: CallRecord) -> None:
        self._host = host
        self._record = record
        self._calls: Counter[tuple[str, str]] = Counter()

    async def start_session(self, invocation: RunInvocation) -> str:
        """Return the run's Session id."""
        async with self._recorded("start_session", invocation, None) as result:
            result["session_id"] = session_id = f"sess-{_digest(invocation.run_id)}"
        return session_id

    async def admit_turn(self, invocation: RunInvocation, session_id: str) -> AdmittedTurn:
        """Return the run's turn."""
        digest = _digest(invocation.run_id)
        async with self._recorded("admit_turn", invocation, session_id) as result:
            result["turn_id"] = f"turn-{digest}"
        return AdmittedTurn(f"turn-{digest}", f"cmd-{digest}")

    @asynccontextmanager
    async def _recorded(
        self, call: str, run: RunInvocation, session_id: str | None
    ) -> AsyncIterator[dict[str, Any]]:
        entry: dict[str, Any] = {
            "host": self._host,
            "pid": os.getpid(),
            "call": call,
            "run_id": run.run_id,
            "deployment_id": run.deployment_id,
            "trigger": run.trigger,
            "scheduled_for": timestamp(run.scheduled_for),
            "replayed_from_run_id": run.replayed_from_run_id,
            "session_id": session_id,
            "payload_sha256": sha256(json.dumps(run.payload, default=dict).encode()).hexdigest(),
        }
        self._record.append(_now("begin") | entry | {"payload": run.payload})
        result: dict[str, Any] = {}
        try:
            await self._behave(call, run)
            yield result
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
            self._record.append(_now("error") | entry | {"error": said})
            raise
        self._record.append(_now("end") | entry | result)

    async def _behave(self, call: str, run: RunInvocation) -> None:
        wanted = run.payload.get("behaviour") or {}
        if wanted.get("host") not in (None, self._host):
            return
        self._calls[call, run.run_id] += 1
        kind, _, amount = str(wanted.get(call, "")).partition(":")
        match kind:
            case "":
                pass
            case "fail":
                if self._calls[call, run.run_id] <= int(amount):
                    raise StagedFailureError(f"{call} fails {amount} times")
            case "permanent":
                raise RunPermanentError(f"{call} fails for good")
            case "hang":
                await asyncio.sleep(float(amount))
            case "block":
                time.sleep(float(amount))  # noqa: ASYNC251 - a blocked loop is what was asked for
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case _:
                raise RunPermanentError(f"there is no behaviour {kind!r}")


def _now(phase: str) -> dict[str, Any]:
    """`t` by this process's wall clock, which may be wrong; `monotonic` by the machine's, which is not."""
    return {"t": time.time(), "monotonic": time.monotonic(), "phase": phase}


def _digest(run_id: str) -> str:
    return sha256(run_id.encode()).hexdigest()[:24]
