"""The store of the in-memory provider: what several replicas in one process share."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from astrabox.seams.scheduler import (
    RunInvocation,
    RunStatus,
    Schedule,
    ScheduledRun,
    Trigger,
)


class StoreFaultError(Exception):
    """The store cannot be reached; its text is the engine's own."""


@dataclass(frozen=True, slots=True)
class StoredSchedule:
    """A Schedule with its payload as JSON text."""

    deployment_id: str
    cron: str
    timezone: str
    enabled: bool
    payload_text: str

    @classmethod
    def of(cls, rule: Schedule) -> "StoredSchedule":
        """Return ``rule`` as it is stored."""
        text = json.dumps(rule.payload, default=dict)
        return cls(rule.deployment_id, rule.cron, rule.timezone, rule.enabled, text)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run record; ``owner`` is the replica that dispatches it, None if it has been released."""

    run_id: str
    deployment_id: str
    trigger: Trigger
    scheduled_for: datetime | None
    payload_text: str
    created_at: datetime
    replayed_from_run_id: str | None = None
    status: RunStatus = "queued"
    session_id: str | None = None
    turn_id: str | None = None
    error: str | None = None
    attempts: int = 0
    owner: str | None = None

    @property
    def ended(self) -> bool:
        """Whether there is nothing left to do."""
        return self.status not in ("queued", "running")

    def row(self) -> ScheduledRun:
        """Return the run as the ledger shows it."""
        return ScheduledRun(
            run_id=self.run_id,
            deployment_id=self.deployment_id,
            trigger=self.trigger,
            status=self.status,
            scheduled_for=self.scheduled_for,
            payload=json.loads(self.payload_text),
            session_id=self.session_id,
            turn_id=self.turn_id,
            error=self.error,
            created_at=self.created_at,
            replayed_from_run_id=self.replayed_from_run_id,
        )

    def invocation(self) -> RunInvocation:
        """Return what the handler gets, with a payload of its own."""
        return RunInvocation(
            run_id=self.run_id,
            deployment_id=self.deployment_id,
            trigger=self.trigger,
            scheduled_for=self.scheduled_for,
            payload=json.loads(self.payload_text),
            replayed_from_run_id=self.replayed_from_run_id,
        )


class MemoryStore:
    """Tables of Schedules and runs; every access gives way to other tasks first, as I/O does."""

    def __init__(self) -> None:
        self._schedules: dict[str, StoredSchedule] = {}
        self._runs: dict[str, StoredRun] = {}
        self._fault = False

    @asynccontextmanager
    async def fault(self) -> AsyncIterator[None]:
        """Let every access fail while the context lasts."""
        self._fault = True
        try:
            yield
        finally:
            self._fault = False

    async def _access(self) -> None:
        await asyncio.sleep(0)
        if self._fault:
            raise StoreFaultError("etcdserver: request timed out, HTTP status code 503")

    async def schedules(self) -> list[StoredSchedule]:
        """Return all Schedules."""
        await self._access()
        return list(self._schedules.values())

    async def schedule(self, deployment_id: str) -> StoredSchedule | None:
        """Return one Schedule."""
        await self._access()
        return self._schedules.get(deployment_id)

    async def put_schedule(self, rule: StoredSchedule) -> None:
        """Create or replace a Schedule."""
        await self._access()
        self._schedules[rule.deployment_id] = rule

    async def delete_schedule(self, deployment_id: str) -> None:
        """Delete a Schedule, if it is there."""
        await self._access()
        self._schedules.pop(deployment_id, None)

    async def insert_run(self, run: StoredRun) -> bool:
        """Create a run; False if its id is taken. Test and insertion are one step."""
        await self._access()
        return self._runs.setdefault(run.run_id, run) is run

    async def update_run(self, run_id: str, **changes: Any) -> StoredRun:
        """Change fields of a run and return it."""
        await self._access()
        run = self._runs[run_id] = replace(self._runs[run_id], **changes)
        return run

    async def run(self, run_id: str) -> StoredRun | None:
        """Return one run."""
        await self._access()
        return self._runs.get(run_id)

    async def runs(self, deployment_id: str | None = None) -> list[StoredRun]:
        """Return the runs of one Deployment, or all, oldest first."""
        await self._access()
        return [r for r in self._runs.values() if deployment_id in (None, r.deployment_id)]

    @staticmethod
    def now() -> datetime:
        """Return the time at which a record is made, aware UTC."""
        return datetime.now(UTC)
