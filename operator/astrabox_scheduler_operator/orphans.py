"""Cancels scheduled runs that nobody will start: made in the tail of Leases of processes that were killed."""

import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from astrabox_scheduler_client.errors import ApiError, Conflict, MalformedAnswer, NotFound
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import parse_scheduled_run_name
from astrabox_scheduler_crds.recovery import Orphan, settle_orphan
from astrabox_scheduler_crds.run import RunInvocation
from astrabox_scheduler_crds.transitions import Cancellation, status_patch, with_cancellation
from astrabox_scheduler_operator.attendance import Attendance, is_ours
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.repeat import Tries, shuffled

ORPHAN_SECONDS: Final = 30.0
_SHARE: Final = "orphans"
_LOG = logging.getLogger(__name__)


class OrphanStore(Protocol):
    """The calls for runs that this needs."""

    async def list_unfinished_metadata(self) -> list[ObjectMeta]:
        """Metadata of every unfinished run. Raises ApiError."""
        ...

    async def get(self, name: str) -> RunInvocation:
        """Read it. Raises ApiError."""
        ...

    async def patch_status(
        self, name: str, status: Mapping[str, Any], resource_version: str | None
    ) -> ObjectMeta:
        """Merge into its status. Raises ApiError."""
        ...


class Orphans:
    """One operator has this share.

    Nothing is believed shortly after the API server was away: providers need a moment to renew. Within the
    `window` in which a due time may fire late a run is left alone: the process that it is meant for may be
    cut off, and show later that it was there. Meanwhile no process starts it.
    """

    def __init__(
        self, runs: OrphanStore, attendance: Attendance, metrics: Metrics, window: timedelta
    ) -> None:
        self._runs = runs
        self._attendance = attendance
        self._metrics = metrics
        self._window = window
        self._kept: set[tuple[str | None, str | None]] = set()

    async def settle(self, now: datetime) -> int:
        """Cancel what is to be cancelled; how many. Raises ApiError."""
        if not self._attendance.held() or not self._attendance.steady():
            return 0
        if not is_ours(_SHARE, self._attendance):
            self._kept.clear()
            return 0
        cancelled = 0
        found = await self._runs.list_unfinished_metadata()
        self._kept &= {_identity(meta) for meta in found}
        doubtful = [meta for meta in found if self._is_doubtful(meta, now)]
        if doubtful:
            await self._attendance.refresh()
        tries = Tries()
        for meta in shuffled(doubtful):
            if tries.given_up:
                break
            try:
                cancelled += await self._one(meta, now)
            except ApiError as error:
                _LOG.warning("a run cannot be looked at: %s", error, extra={"run": meta.name})
                tries.failed(error)
            else:
                tries.succeeded()
        tries.raise_if_given_up()
        return cancelled

    def _is_doubtful(self, meta: ObjectMeta, now: datetime) -> bool:
        """Whether it may have to be cancelled, as far as its name tells."""
        parsed = parse_scheduled_run_name(meta.name)
        if parsed is None or now - parsed[1] <= self._window or _identity(meta) in self._kept:
            return False
        return not self._attendance.providers().proves(parsed[1])

    async def _one(self, meta: ObjectMeta, now: datetime) -> bool:
        try:
            run = await self._runs.get(meta.name)
            settled = settle_orphan(run, self._attendance.providers(), now, self._window)
            if settled is not Orphan.CANCEL:
                if settled is Orphan.ADOPT:
                    self._kept.add(_identity(meta))
                return False
            patch = status_patch(run.status, with_cancellation(run.status, Cancellation.NOBODY_THERE, now))
            await self._runs.patch_status(meta.name, patch, run.metadata.resource_version)
        except (Conflict, NotFound, MalformedAnswer):
            return False  # it changed meanwhile; the next sweep sees what it is then
        except ApiError as error:
            if not error.permanent or error.of_all:
                raise
            _LOG.warning("a run cannot be cancelled: %s", error, extra={"run": meta.name})
            self._kept.add(_identity(meta))  # the others go on, and it is tried when it changes
            return False
        self._metrics.runs_cancelled.inc()
        _LOG.info("a run was cancelled", extra={"run": meta.name, "reason": Cancellation.NOBODY_THERE.reason})
        return True


def _identity(meta: ObjectMeta) -> tuple[str | None, str | None]:
    return meta.uid, meta.resource_version
