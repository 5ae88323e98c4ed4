"""Writes of schedules, each followed until it is known what became of it.

A write without an answer may have been carried out. It is looked after for a bounded time: the
store is read again, and the write repeated where it was not carried out. Every write rests on the
version that was read, so that of two repeats only one can succeed.

Two commands for one schedule may overlap, in two processes. Each bears the time at which it was given,
and one that finds a later one stored in its way has been overtaken: it writes nothing more and is
answered as done, since what AstraBox wanted last is what is stored.

The doubt is noted before a write begins and taken back when it was refused, so that a call that is
cancelled at any point leaves behind what there is to put back.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.errors import AlreadyExists, ApiError, Conflict, NotFound, QuotaExceeded
from astrabox_scheduler_crds.deletion import deleted, given_at
from astrabox_scheduler_crds.labels import APPLIED_AT_ANNOTATION, GIVEN_AT_ANNOTATION
from astrabox_scheduler_crds.metadata import utc_text
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_kubernetes.rules import Wanted, desired, differs, is_overtaken, written
from astrabox_scheduler_kubernetes.timing import Pauses, Timing

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")
_MAX_CONFLICTS: Final = 8


@dataclass(slots=True)
class Trail:
    """What a call found that others wrote, and which of its own writes may have been carried out."""

    previous: DeploymentSchedule | None = None
    read: bool = False
    marks: set[str] = field(default_factory=set)
    unanswered: bool = False
    """Whether the stored state may be another than before the call."""

    def saw(self, stored: DeploymentSchedule | None) -> None:
        """Remember what the next write rests on.

        None rests on a later version: once another is stored, no write of this call can be carried out.
        """
        self.previous, self.read = stored, True


async def read(api: SchedulerApi, name: str) -> DeploymentSchedule | None:
    """The stored schedule, None where there is none. Raises ApiError."""
    try:
        return await api.schedules.get(name)
    except NotFound:
        return None


def mark_of(schedule: DeploymentSchedule) -> str:
    """The mark of the apply that wrote it, empty without."""
    return schedule.metadata.annotations.get(APPLIED_AT_ANNOTATION, "")


class Writing:
    """One write of one schedule, repeated until it is settled or `timing.settle` seconds are over.

    `begun`: when AstraBox gave the command, in seconds of the clock's monotonic time; now if left out.
    """

    def __init__(
        self, api: SchedulerApi, timing: Timing, trail: Trail | None = None, begun: float | None = None
    ) -> None:
        self.api = api
        self._begun = api.clock.monotonic() if begun is None else begun
        self._given: datetime | None = None
        self._first: datetime | None = None
        self._timing = timing
        self._pauses = Pauses(timing)
        self._deadline: float | None = None
        self._conflicts = 0
        self.trail = trail or Trail()

    async def put(
        self,
        want: Wanted,
        *,
        marked: bool,
        admit: Callable[[DeploymentSchedule | None], Awaitable[None]] | None = None,
        leave: Callable[[DeploymentSchedule], bool] | None = None,
    ) -> bool:
        """Store a schedule; False if it was left as it is: `leave` said so, nothing differs, or overtaken.

        `marked`: a command, which is written even if nothing differs, and marked as applied now.
        `admit` may refuse by raising. Raises ApiError, and what `desired` raises.
        """
        while True:
            try:
                stored = await read(self.api, want.name)
                if stored is not None and self._is_ours(stored):
                    return True
                known = stored if stored and stored.spec.deployment_id == want.deployment_id else None
                self.trail.saw(known)
                if marked and self._is_overtaken(known):
                    return False
                if stored is not None and leave is not None and leave(stored):
                    return False
                if await self._out_of_the_way(want, stored):
                    continue
                now = self.api.clock.now()
                spec = desired(want, stored, now)
                if stored is not None and not marked and not differs(spec, stored):
                    return False
                if admit is not None:
                    await admit(stored)
                schedule = written(want, spec, stored, now if marked else None)
                await self._write(schedule, create=stored is None, marked=marked)
            except ApiError as error:
                await self._after(error)
            else:
                return True

    async def bury(
        self,
        name: str,
        deployment_id: str,
    ) -> None:
        """Leave a tombstone in the place of this Deployment's schedule, also where there is none.

        A create by another process that still holds an older list is refused by it, whenever it comes.
        Nothing happens to a schedule of another Deployment. Raises ApiError.
        """
        while True:
            try:
                stored = await read(self.api, name)
                if stored is not None and (
                    stored.spec.deployment_id != deployment_id or self._is_ours(stored)
                ):
                    return
                self.trail.saw(stored)
                if self._is_overtaken(stored):
                    return
                tombstone = deleted(deployment_id, stored, self.api.clock.now())
                await self._write(tombstone, create=stored is None, marked=True)
            except QuotaExceeded:
                _LOG.warning("schedule %s was not there, and no quota is left to note its deletion", name)
                return
            except ApiError as error:
                await self._after(error)
            else:
                return

    async def erase(self, name: str, *, leave: Callable[[DeploymentSchedule], bool]) -> bool:
        """Delete the object, whosever it is, unless `leave` says that it stays. Raises ApiError.

        What is deleted is what `leave` has seen: another version is read again. False if it stays, or
        was gone already; a delete without an answer counts when it is gone afterwards.
        """
        while True:
            try:
                stored = await read(self.api, name)
                if stored is None:
                    return self.trail.unanswered
                if leave(stored):
                    return False
                await self._delete(stored)
            except ApiError as error:
                await self._after(error)
            else:
                return True

    def _is_ours(self, stored: DeploymentSchedule) -> bool:
        return mark_of(stored) in self.trail.marks

    def _is_overtaken(self, stored: DeploymentSchedule | None) -> bool:
        """Whether a later command is stored; to be asked after every look, None where there is nothing."""
        clock = self.api.clock
        at, now = given_at(stored.metadata) if stored is not None else None, clock.now()
        if self._given is None:  # only now, when an answer has set the clock
            self._given = now - timedelta(seconds=clock.monotonic() - self._begun)
            self._first = at
        if stored is None or not is_overtaken(at, self._first, self._given, now, self._timing.clocks):
            return False
        _LOG.info("schedule %s: a later command is stored already and stays", stored.metadata.name)
        return True

    async def _out_of_the_way(self, want: Wanted, stored: DeploymentSchedule | None) -> bool:
        """Whether something that cannot become the wanted schedule had to go first."""
        if stored is None:
            return False
        if stored.metadata.deletion_timestamp is not None:
            raise Conflict("it is being deleted")
        if stored.spec.deployment_id == want.deployment_id:
            return False
        await self.api.schedules.delete(want.name, stored.metadata.uid)
        return True

    async def _write(self, schedule: DeploymentSchedule, *, create: bool, marked: bool) -> None:
        trail, mark = self.trail, mark_of(schedule) if marked else ""
        if self._given is not None:
            schedule = _bearing(schedule, self._given)
        before = trail.unanswered
        trail.unanswered = True
        trail.marks |= {mark} - {""}
        try:
            await (self.api.schedules.create if create else self.api.schedules.update)(schedule)
        except ApiError as error:
            if not error.ambiguous:
                trail.unanswered = before
                trail.marks.discard(mark)
            raise

    async def _delete(self, stored: DeploymentSchedule) -> None:
        metadata = stored.metadata
        try:
            await self.api.schedules.delete(metadata.name, metadata.uid, metadata.resource_version)
        except ApiError as error:
            self.trail.unanswered |= error.ambiguous
            if not isinstance(error, NotFound):
                raise

    async def _after(self, error: ApiError) -> None:
        """Wait before the next try; raises `error` where there is none."""
        if isinstance(error, (Conflict, AlreadyExists)) and self._conflicts < _MAX_CONFLICTS:
            self._conflicts += 1
        elif isinstance(error, NotFound) and self._conflicts < _MAX_CONFLICTS:
            self._conflicts += 1  # deleted since it was read
        elif not self.trail.unanswered or error.permanent:
            raise error
        loop = asyncio.get_running_loop()
        if self._deadline is None:
            self._deadline = loop.time() + self._timing.settle
        pause = self._pauses.next(error.retry_after)
        if loop.time() + pause > self._deadline:
            raise error
        await asyncio.sleep(pause)


def _bearing(schedule: DeploymentSchedule, at: datetime) -> DeploymentSchedule:
    metadata = schedule.metadata
    marks = {**metadata.annotations, GIVEN_AT_ANNOTATION: utc_text(at)}
    return schedule.changed(metadata=metadata.changed(annotations=marks))
