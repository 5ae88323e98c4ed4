"""Deletes what is not needed any more.

Finished runs beyond the limit, Leases of processes long gone, and what is left of deleted schedules.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from astrabox_scheduler_client.errors import ApiError, Conflict, NotFound
from astrabox_scheduler_client.fan_out import fan_out
from astrabox_scheduler_crds.deletion import is_deleted, may_go
from astrabox_scheduler_crds.lease import Lease
from astrabox_scheduler_crds.metadata import ObjectMeta, ObjectRef
from astrabox_scheduler_crds.names import parse_scheduled_run_name
from astrabox_scheduler_crds.recovery import lease_is_needed
from astrabox_scheduler_crds.retention import expired_runs
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_operator.attendance import Attendance, is_ours
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.repeat import Tries, shuffled

RETENTION_SECONDS: Final = 60.0
SHARE: Final = "retention"
MAX_REFUSED: Final = 20
"""So many deletes may be refused for good in one round; the oldest that are refused hold up no other."""
_CONCURRENCY: Final = 4
_LOG = logging.getLogger(__name__)


class Deletes(Protocol):
    """A store that objects are deleted from."""

    async def delete(self, name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        """Delete one. Raises ApiError."""
        ...


class FinishedRuns(Deletes, Protocol):
    """The calls for runs that retention needs."""

    async def list_finished_refs(self) -> list[ObjectRef]:
        """Every finished run. Raises ApiError."""
        ...

    async def list_unfinished_metadata(self) -> list[ObjectMeta]:
        """Metadata of every other run. Raises ApiError."""
        ...


class LeaseStore(Deletes, Protocol):
    """The calls for Leases that retention needs."""

    async def list(self) -> list[Lease]:
        """All Leases of ours. Raises ApiError."""
        ...


class DeletedSchedules(Deletes, Protocol):
    """The calls for schedules that retention needs."""

    async def list_deleted(self) -> Sequence[DeploymentSchedule]:
        """Those that AstraBox has deleted. Raises ApiError."""
        ...


@dataclass(slots=True)
class _Round:
    """What became of the deletes of one kind; `count` is called for each that was carried out."""

    count: Callable[[], object]
    deleted: int = 0
    refused: int = 0
    tries: Tries = field(default_factory=Tries)
    example: ApiError | None = None


@dataclass(frozen=True, slots=True)
class Retention:
    """`window` is the catch-up window; nothing younger than twice of it is deleted."""

    runs: FinishedRuns
    leases: LeaseStore
    schedules: DeletedSchedules
    attendance: Attendance
    metrics: Metrics
    idle: asyncio.Event
    keep: int
    window: timedelta
    _refused: set[str] = field(default_factory=set, init=False)

    async def prune(self, now: datetime) -> int:
        """Delete what has to go, if this operator has that share; how many runs. Raises ApiError."""
        if not self.attendance.held() or not is_ours(SHARE, self.attendance):
            return 0
        finished = await self.runs.list_finished_refs()
        expired = expired_runs(finished, keep=self.keep, floor=2 * self.window, now=now)
        del finished  # it may be most of what this process holds
        deleted = await self._delete("finished runs", self.runs, expired, self.metrics.runs_deleted.inc)
        await self._delete("Leases", self.leases, await self._lapsed_leases(now))
        await self._delete("deleted schedules", self.schedules, await self._tombstones(now))
        return deleted

    async def _delete(
        self,
        what: str,
        store: Deletes,
        doomed: Sequence[ObjectMeta] | Sequence[ObjectRef],
        count: Callable[[], object] = lambda: None,
    ) -> int:
        """Delete behind the bursts. One that cannot be deleted holds up no other, and is told once.

        Raises ApiError where nothing gets through.
        """
        waiting: deque[ObjectMeta | ObjectRef] = deque(shuffled(doomed))
        done = _Round(count)

        async def work(_: int) -> None:
            while waiting and done.refused < MAX_REFUSED and not done.tries.given_up:
                meta = waiting.popleft()
                await self.idle.wait()
                await self._delete_one(store, meta, done)

        await fan_out(work, range(min(_CONCURRENCY, len(doomed))))
        if done.deleted:
            _LOG.info("deleted %s", what, extra={"count": done.deleted})
        self._tell_refused(what, done)
        done.tries.raise_if_given_up()
        return done.deleted

    async def _delete_one(self, store: Deletes, meta: ObjectMeta | ObjectRef, done: _Round) -> None:
        try:
            await store.delete(meta.name, meta.uid, meta.resource_version)
        except (Conflict, NotFound):
            return  # somebody touched it: the next time
        except ApiError as error:
            done.example = error
            if error.permanent:
                done.refused += 1
            else:
                done.tries.failed(error)
        else:
            done.deleted += 1
            done.tries.succeeded()
            done.count()

    def _tell_refused(self, what: str, done: _Round) -> None:
        if done.example is None:
            self._refused.discard(what)
        elif what not in self._refused:
            self._refused.add(what)
            told = "%s cannot be deleted, trying on: %s"
            _LOG.warning(told, what, done.example, extra={"count": done.refused})

    async def _tombstones(self, now: datetime) -> list[ObjectMeta]:
        """Schedules that AstraBox deleted so long ago that no older list of it brings them back."""
        found = await self.schedules.list_deleted()
        return [each.metadata for each in found if is_deleted(each) and may_go(each, now)]

    async def _lapsed_leases(self, now: datetime) -> list[ObjectMeta]:
        """Leases that neither say who is there nor prove a due time that may still matter."""
        leases = await self.leases.list()
        live = self.attendance.operators() | self.attendance.providers().live
        kept = live | {_newest_operator(leases)}
        horizon = now - 2 * self.window
        old = [
            lease
            for lease in leases
            if lease.metadata.name not in kept and not lease_is_needed(lease.spec.renew_time, horizon)
        ]
        providers = [lease for lease in old if lease.role == "provider"]
        if providers:
            horizon = min(horizon, _oldest_due(await self.runs.list_unfinished_metadata(), horizon))
            providers = [each for each in providers if not lease_is_needed(each.spec.renew_time, horizon)]
        operators = [lease for lease in old if lease.role == "operator"]
        return [lease.metadata for lease in (*providers, *operators)]


def _oldest_due(unfinished: Iterable[ObjectMeta], otherwise: datetime) -> datetime:
    """The due time of the oldest unfinished scheduled run: who was there at it may yet be asked."""
    parsed = (parse_scheduled_run_name(meta.name) for meta in unfinished)
    return min((found[1] for found in parsed if found is not None), default=otherwise)


def _newest_operator(leases: list[Lease]) -> str | None:
    """Shows that an operator was here once, when none is running."""
    operators = [lease for lease in leases if lease.role == "operator" and lease.spec.renew_time]
    newest = max(operators, key=lambda lease: str(lease.spec.renew_time), default=None)
    return newest.metadata.name if newest is not None else None
