"""A run handler that records its calls and fails or waits as a test says."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal

from astrabox.seams.scheduler import AdmittedTurn, RunInvocation

Method = Literal["start_session", "admit_turn"]
Fault = Callable[[], Exception]
Hook = Callable[[RunInvocation], Awaitable[None]]


class SandboxBusyError(Exception):
    """A failure that is worth a retry."""


def canonical(payload: Mapping[str, Any]) -> str:
    """Return text that differs if two JSON values differ at all: ``1`` and ``1.0``, order of keys."""
    return json.dumps(payload, default=dict)


def session_of(run_id: str) -> str:
    """Return the Session id of a run; AstraBox derives it from the run id, too."""
    return f"sess-{_digest(run_id)}"


def turn_of(run_id: str) -> str:
    """Return the turn id of a run."""
    return f"turn-{_digest(run_id)}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:20]


@dataclass(frozen=True, slots=True)
class HandlerCall:
    """One call of the handler, with the payload as it was when the call began."""

    method: Method
    invocation: RunInvocation
    session_id: str | None
    payload_text: str

    @property
    def identity(self) -> tuple[object, ...]:
        """Everything of the invocation that must be the same on every repeat."""
        run = self.invocation
        return (
            run.run_id,
            run.deployment_id,
            run.trigger,
            run.scheduled_for,
            run.replayed_from_run_id,
            self.payload_text,
        )


class RecordingHandler:
    """AstraBox's side of the runs in a test; idempotent by run id, as AstraBox is."""

    def __init__(self) -> None:
        self.calls: list[HandlerCall] = []
        self._faults: dict[Method, list[Fault]] = {"start_session": [], "admit_turn": []}
        self._always: dict[Method, Fault] = {}
        self._hooks: dict[Method, Hook] = {}
        self._held: set[Method] = set()
        self._released = asyncio.Event()
        self._called = asyncio.Event()

    def fail(self, method: Method, *faults: Fault) -> None:
        """Let the next calls of ``method`` fail, one after the other."""
        self._faults[method].extend(faults)

    def fail_always(self, method: Method, fault: Fault) -> None:
        """Let every call of ``method`` fail."""
        self._always[method] = fault

    def hold(self, method: Method) -> None:
        """Let calls of ``method`` wait until `release`."""
        self._held.add(method)
        self._released.clear()

    def release(self) -> None:
        """Let all waiting calls go on, and hold no more."""
        self._held.clear()
        self._released.set()

    def on(self, method: Method, hook: Hook) -> None:
        """Await ``hook`` within every call of ``method``."""
        self._hooks[method] = hook

    def count(self, method: Method, run_id: str | None = None) -> int:
        """Return how many calls of ``method`` have begun, for one run or for all."""
        return len(self.of(method, run_id))

    def of(self, method: Method, run_id: str | None = None) -> list[HandlerCall]:
        """Return the calls of ``method``, for one run or for all."""
        return [c for c in self.calls if c.method == method and run_id in (None, c.invocation.run_id)]

    async def seen(self, method: Method, count: int, within: float) -> None:
        """Wait until ``count`` calls of ``method`` have begun; AssertionError after ``within`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within):
                while self.count(method) < count:
                    self._called.clear()
                    await self._called.wait()
        had = self.count(method)
        assert had >= count, f"{method} was called {had} times within {within} s, not {count}"

    async def start_session(self, invocation: RunInvocation) -> str:
        """Record the call; return the Session id derived from the run id."""
        await self._begin("start_session", invocation, None)
        return session_of(invocation.run_id)

    async def admit_turn(self, invocation: RunInvocation, session_id: str) -> AdmittedTurn:
        """Record the call; return the turn derived from the run id."""
        await self._begin("admit_turn", invocation, session_id)
        return AdmittedTurn(turn_of(invocation.run_id), None)

    async def _begin(self, method: Method, invocation: RunInvocation, session_id: str | None) -> None:
        self.calls.append(HandlerCall(method, invocation, session_id, canonical(invocation.payload)))
        self._called.set()
        if hook := self._hooks.get(method):
            await hook(invocation)
        if method in self._held:
            await self._released.wait()
        if self._faults[method]:
            error = self._faults[method].pop(0)()
            raise error
        if method in self._always:
            error = self._always[method]()
            raise error
