"""Counts the due times that schedules have passed over because they were too old to fire."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol

from astrabox_scheduler_client.confirm import ONE_BY_ONE
from astrabox_scheduler_client.fan_out import fan_out
from astrabox_scheduler_crds.firing import DueTimes, SkipReason, missed_before
from astrabox_scheduler_crds.labels import DEPLOYMENT_LABEL
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import parse_scheduled_run_name
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_operator.entry import Entry
from astrabox_scheduler_operator.skips import Skips

COUNTING_SECONDS: Final = 0.05
"""Between two pauses, and up to one walk more: what comes due meanwhile is late by that."""
COUNTING_PAUSE_SECONDS: Final = 0.06
"""The walk over a day of minutes takes 60 ms for each schedule: half the time is for all else."""
TURN_SECONDS: Final = 1.0


class RunLists(Protocol):
    """The reads that this needs."""

    async def list_metadata(self) -> list[ObjectMeta]:
        """Metadata of every run. Raises ApiError."""
        ...

    async def list_metadata_for_deployment(self, key: str) -> list[ObjectMeta]:
        """Metadata of the runs of one Deployment. Raises ApiError."""
        ...


@dataclass(frozen=True, slots=True)
class _Span:
    """Due times in (after, horizon] that a schedule passed over."""

    due_times: DueTimes
    after: datetime
    horizon: datetime


_Key = tuple[str, str | None]  # name and uid of the schedule


class MissedCount:
    """Takes spans at once and counts them later, in a task of its own: firing does not wait for it.

    What has its run all the same was not missed: an operator fired it whose statuses did not get through.
    `keep`: so many finished runs of each Deployment are kept.
    """

    def __init__(self, runs: RunLists, skips: Skips, clock: ServerClock, keep: int) -> None:
        self._runs = runs
        self._skips = skips
        self._clock = clock
        self._keep = keep
        self._spans: dict[_Key, list[_Span]] = {}
        self._waiting = asyncio.Event()

    def put(self, entry: Entry, horizon: datetime) -> None:
        """`entry` passes over its due times from its cursor up to `horizon`."""
        assert entry.timeline is not None
        self._join((entry.name, entry.metadata.uid), _Span(entry.timeline, entry.cursor, horizon))
        self._waiting.set()

    async def turn(self, idle: asyncio.Event) -> None:
        """Wait until there is something and no burst is in progress, and count it. Raises ApiError."""
        await self._waiting.wait()
        await idle.wait()
        if self._skips.attendance.held():  # another operator counts it else
            await self.count(idle)

    async def count(self, idle: asyncio.Event) -> int:
        """Count what waits now; how many were missed. Raises ApiError: then it waits on."""
        taken, self._spans = self._spans, {}
        try:
            runs = await self._runs_of({name for name, _ in taken})
        except BaseException:
            # Cancelled or refused: what came meanwhile is later than what was taken.
            taken, self._spans = self._spans, taken
            for key, spans in taken.items():
                for span in spans:
                    self._join(key, span)
            raise
        if not self._spans:
            self._waiting.clear()
        missed, begun = 0, self._clock.monotonic()
        for (name, uid), spans in taken.items():
            for span in spans:
                entry = self._skips.index.get(name)
                if entry is not None and entry.metadata.uid == uid:
                    missed += self._count(entry, span, runs.get(name, ()))
                if self._clock.monotonic() - begun >= COUNTING_SECONDS:
                    await asyncio.sleep(COUNTING_PAUSE_SECONDS)
                    await idle.wait()
                    begun = self._clock.monotonic()
        return missed

    def _join(self, key: _Key, span: _Span) -> None:
        """A schedule that passes on and on while nothing can be read keeps one span."""
        spans = self._spans.setdefault(key, [])
        last = spans[-1] if spans else None
        if last is not None and (last.due_times, last.horizon) == (span.due_times, span.after):
            spans[-1] = replace(last, horizon=span.horizon)
        else:
            spans.append(span)

    async def _runs_of(self, schedules: set[str]) -> dict[str, list[ObjectMeta]]:
        """The runs of these; of many at once all runs are listed."""
        if len(schedules) <= ONE_BY_ONE:
            names = sorted(schedules)
            found = await fan_out(self._runs.list_metadata_for_deployment, names)
            return dict(zip(names, found, strict=True))
        runs: dict[str, list[ObjectMeta]] = {}
        for meta in await self._runs.list_metadata():
            key = meta.labels.get(DEPLOYMENT_LABEL)
            if key in schedules:
                runs.setdefault(key, []).append(meta)
        return runs

    def _count(self, entry: Entry, span: _Span, runs: Iterable[ObjectMeta]) -> int:
        now, after = self._clock.now(), _counted_to(entry, span.after)
        names = [meta.name for meta in runs]
        fired = _due_times(names, entry.name, after, span.horizon)
        if fired:
            entry.learn_fired(fired[-1])
            self._skips.index.touch(entry.name)
            if len(names) >= self._keep:
                after = fired[0]  # runs of earlier ones may have been there, and retention took them
        missed = missed_before(span.due_times, after, span.horizon, frozenset(fired))
        if missed is None:
            return 0
        self._skips.span(entry, (missed.first, missed.last, missed.count), SkipReason.MISSED, now)
        return missed.count


def _due_times(names: Iterable[str], key: str, after: datetime, horizon: datetime) -> list[datetime]:
    """Those of the scheduled runs of `key` in (after, horizon], ascending."""
    parsed = filter(None, map(parse_scheduled_run_name, names))
    return sorted(due for owner, due in parsed if owner == key and after < due <= horizon)


def _counted_to(entry: Entry, after: datetime) -> datetime:
    """How far another operator has counted what was missed after that.

    Two that have just started both pass all of it, until they see each other.
    """
    told = entry.stored.skipped
    if told is None or told.reason != SkipReason.MISSED or told.last_due_time is None:
        return after
    return max(after, told.last_due_time)
