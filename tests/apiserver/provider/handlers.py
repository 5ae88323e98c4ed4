"""What stands for AstraBox in the provider's tests: its Schedules, and handlers of every temper."""

import asyncio
from typing import Any

from astrabox.seams.scheduler import AdmittedTurn, RunInvocation, Schedule


def rule(deployment_id: str = "d", **fields: Any) -> Schedule:
    """An AstraBox Schedule."""
    return Schedule(
        deployment_id,
        fields.get("cron", "* * * * *"),
        fields.get("timezone", "UTC"),
        fields.get("enabled", True),
        fields.get("payload", {"prompt": "p"}),
    )


class Instant:
    """A handler that answers at once, and knows how often it was asked for what."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.admitted: list[tuple[str, str]] = []

    async def start_session(self, invocation: RunInvocation) -> str:
        self.started.append(invocation.run_id)
        return f"session-of-{invocation.run_id}"

    async def admit_turn(self, invocation: RunInvocation, session_id: str) -> AdmittedTurn:
        self.admitted.append((invocation.run_id, session_id))
        return AdmittedTurn(f"turn-of-{invocation.run_id}", None)


class Held(Instant):
    """One whose calls wait until they are let go."""

    def __init__(self, *methods: str) -> None:
        super().__init__()
        self._methods = methods or ("start_session",)
        self.go = asyncio.Event()
        self.cancelled: list[str] = []

    async def start_session(self, invocation: RunInvocation) -> str:
        session = await super().start_session(invocation)
        await self._wait("start_session", invocation.run_id)
        return session

    async def admit_turn(self, invocation: RunInvocation, session_id: str) -> AdmittedTurn:
        turn = await super().admit_turn(invocation, session_id)
        await self._wait("admit_turn", invocation.run_id)
        return turn

    async def _wait(self, method: str, run_id: str) -> None:
        if method in self._methods:
            try:
                await self.go.wait()
            except asyncio.CancelledError:
                self.cancelled.append(run_id)
                raise
