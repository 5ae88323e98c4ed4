"""Deletes what is not needed any more: finished runs beyond the limit, Leases of processes long gone."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from astrabox_scheduler_client.errors import Conflict, NotFound
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.lease import Lease
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.recovery import lease_is_needed
from astrabox_scheduler_crds.retention import expired_runs
from astrabox_scheduler_operator.attendance import Attendance, is_ours
from astrabox_scheduler_operator.metrics import Metrics

RETENTION_SECONDS: Final = 60.0
SHARE: Final = "retention"
_CONCURRENCY: Final = 4
_LOG = logging.getLogger(__name__)


class FinishedRuns(Protocol):
    """The calls for runs that retention needs."""

    async def list_finished_metadata(self) -> list[ObjectMeta]:
        """Metadata of every finished run. Raises ApiError."""
        ...

    async def list_unfinished_metadata(self) -> list[ObjectMeta]:
        """Metadata of every other run. Raises ApiError."""
        ...

    async def delete(self, name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        """Delete one. Raises ApiError."""
        ...


class LeaseStore(Protocol):
    """The calls for Leases that retention needs."""

    async def list(self) -> list[Lease]:
        """All Leases of ours. Raises ApiError."""
        ...

    async def delete(self, name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        """Delete one. Raises ApiError."""
        ...


@dataclass(frozen=True, slots=True)
class Retention:
    """`window` is the catch-up window; nothing younger than twice of it is deleted."""

    runs: FinishedRuns
    leases: LeaseStore
    attendance: Attendance
    metrics: Metrics
    idle: asyncio.Event
    keep: int
    window: timedelta

    async def prune(self, now: datetime) -> int:
        """Delete what has to go, if this operator has that share; how many runs. Raises ApiError."""
        if not self.attendance.held() or not is_ours(SHARE, self.attendance):
            return 0
        finished = await self.runs.list_finished_metadata()
        expired = expired_runs(finished, keep=self.keep, floor=2 * self.window, now=now)
        deleted = await self._delete_runs(expired)
        await self._prune_leases(now)
        return deleted

    async def _delete_runs(self, expired: list[ObjectMeta]) -> int:
        deleted = 0
        waiting = iter(expired)

        async def work() -> None:
            nonlocal deleted
            for meta in waiting:
                await self.idle.wait()
                try:
                    await self.runs.delete(meta.name, meta.uid, meta.resource_version)
                except (Conflict, NotFound):
                    continue  # somebody touched it: the next time
                deleted += 1
                self.metrics.runs_deleted.inc()

        async with asyncio.TaskGroup() as group:
            for _ in range(min(_CONCURRENCY, len(expired))):
                group.create_task(work())
        if deleted:
            _LOG.info("deleted finished runs", extra={"count": deleted})
        return deleted

    async def _prune_leases(self, now: datetime) -> None:
        live = self.attendance.operators() | self.attendance.providers().live
        horizon = now - 2 * self.window
        leases = await self.leases.list()
        old = [lease for lease in leases if _is_old(lease, live, horizon)]
        if not old:
            return
        unfinished = await self.runs.list_unfinished_metadata()
        used = {meta.labels.get(labels.ASSIGNEE_LABEL) for meta in unfinished}
        newest = _newest_operator(leases)
        for lease in old:
            name = lease.metadata.name
            needed = lease_is_needed(lease.spec.renew_time, horizon, has_unfinished_runs=name in used)
            if needed or name == newest:
                continue
            try:
                await self.leases.delete(name, lease.metadata.uid, lease.metadata.resource_version)
            except (Conflict, NotFound):
                continue


def _is_old(lease: Lease, live: frozenset[str], horizon: datetime) -> bool:
    if lease.role not in ("provider", "operator") or lease.metadata.name in live:
        return False
    return not lease_is_needed(lease.spec.renew_time, horizon, has_unfinished_runs=False)


def _newest_operator(leases: list[Lease]) -> str | None:
    """Shows that an operator was here once, when none is running."""
    operators = [lease for lease in leases if lease.role == "operator" and lease.spec.renew_time]
    newest = max(operators, key=lambda lease: str(lease.spec.renew_time), default=None)
    return newest.metadata.name if newest is not None else None
