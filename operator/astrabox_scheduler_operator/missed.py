"""Counts the due times that schedules have passed over because they were too old to fire."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from astrabox_scheduler_client.confirm import ONE_BY_ONE
from astrabox_scheduler_client.errors import ApiError
from astrabox_scheduler_client.fan_out import fan_out
from astrabox_scheduler_crds.firing import FUTURE_TOLERANCE, SkipReason, missed_before
from astrabox_scheduler_crds.metadata import ObjectRef
from astrabox_scheduler_crds.names import parse_scheduled_run_name
from astrabox_scheduler_crds.schedule import ScheduleStatus
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_operator.entry import Entry, Passed
from astrabox_scheduler_operator.skips import Skips

COUNTING_SECONDS: Final = 0.05
"""Between two pauses, and up to one walk more: what comes due meanwhile is late by that."""
COUNTING_PAUSE_SECONDS: Final = 0.06
"""The walk over a day of minutes takes 60 ms for each schedule: half the time is for all else."""
TURN_SECONDS: Final = 5.0
MAX_TURN_SECONDS: Final = 60.0
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)
_IDLE_FOR_EACH_SECOND: Final = 10.0
"""Of reading: what keeps due times from firing may be an API server that has too much to read."""


class RunLists(Protocol):
    """The reads that this needs."""

    async def list_refs(self, key: str | None = None) -> list[ObjectRef]:
        """Every run, or those of one Deployment. Raises ApiError."""
        ...


class MissedCount:
    """Counts in a task of its own, when nothing is to be fired.

    What has its run all the same was not missed: an operator fired it whose statuses did not get through.
    `keep`: so many finished runs of each Deployment are kept.
    """

    def __init__(self, runs: RunLists, skips: Skips, clock: ServerClock, keep: int) -> None:
        self._runs = runs
        self._skips = skips
        self._clock = clock
        self._keep = keep
        self._names: set[str] = set()
        self._waiting = asyncio.Event()
        self._took = 0.0

    def put(self, name: str) -> None:
        """This schedule has passed over due times."""
        self._names.add(name)
        self._waiting.set()

    def pause(self) -> float:
        """Seconds until the next turn."""
        return min(MAX_TURN_SECONDS, max(TURN_SECONDS, _IDLE_FOR_EACH_SECOND * self._took))

    async def turn(self, idle: asyncio.Event) -> None:
        """Wait until there is something and no burst is in progress, and count it. Raises ApiError."""
        await self._waiting.wait()
        await idle.wait()
        if self._skips.attendance.held():  # else another operator fires, and counts
            await self.count(idle)

    async def count(self, idle: asyncio.Event) -> int:
        """Count what waits now; how many were missed. Raises ApiError if any cannot be read: it waits on."""
        passed = self._passed()
        begun = self._clock.monotonic()
        try:
            runs, error = await self._runs_of(passed.keys())
        finally:
            self._took = self._clock.monotonic() - begun
        missed, begun = 0, self._clock.monotonic()
        for name in tuple(runs):
            entry, found = self._skips.index.get(name), runs.pop(name)
            if entry is not None:
                # What it has passed over since the runs were read is for the next turn.
                missed += self._count(entry, passed[name][-1].horizon, found)
            if self._clock.monotonic() - begun >= COUNTING_SECONDS:
                await asyncio.sleep(COUNTING_PAUSE_SECONDS)
                await idle.wait()
                begun = self._clock.monotonic()
        if not self._passed():
            self._waiting.clear()
        if error is not None:
            raise error
        return missed

    def _passed(self) -> dict[str, tuple[Passed, ...]]:
        entries = ((name, self._skips.index.get(name)) for name in self._names)
        passed = {name: entry.passed for name, entry in entries if entry is not None and entry.passed}
        self._names = set(passed)
        return passed

    async def _runs_of(
        self, schedules: Collection[str]
    ) -> tuple[dict[str, list[ObjectRef]], ApiError | None]:
        """The runs of these, and why those of others could not be read; of many at once all are listed."""
        runs: defaultdict[str, list[ObjectRef]] = defaultdict(list)
        errors: list[ApiError] = []
        if len(schedules) > ONE_BY_ONE:
            runs.update((name, []) for name in schedules)
            for run in await self._runs.list_refs():
                if run.deployment in schedules:
                    runs[run.deployment].append(run)
            return runs, None

        async def read(name: str) -> None:
            try:
                runs[name] = await self._runs.list_refs(name)
            except ApiError as error:
                errors.append(error)

        await fan_out(read, schedules)
        return runs, errors[0] if errors else None

    def _count(self, entry: Entry, horizon: datetime, runs: Sequence[ObjectRef]) -> int:
        now = self._clock.now()
        fired, complete_since = _history(runs, self._keep)
        counted, missed = _counted_to(entry.stored, now), 0
        spans = [each for each in entry.passed if each.after < horizon]
        entry.counted_to(horizon)
        self._skips.index.touch(entry.name)
        for span in spans:
            after, end = max(span.after, counted), min(span.horizon, horizon)
            found = [due for due in fired if after < due <= end]
            if found:
                entry.learn_fired(found[-1])
            after = max(after, min(end, complete_since))
            told = missed_before(span.due_times, after, end, frozenset(found))
            if told is not None:
                self._skips.span(entry, (told.first, told.last, told.count), SkipReason.MISSED, now)
                missed += told.count
        return missed


def _history(runs: Sequence[ObjectRef], keep: int) -> tuple[list[datetime], datetime]:
    """The due times that have their run, ascending; and since when every run is there that ever was.

    Retention takes the oldest first, and none while there are fewer than `keep`. How old a run is its due
    time says: its creation may be that of a restored backup.
    """
    fired: list[datetime] = []
    ages: list[datetime] = []
    for run in runs:
        parsed = parse_scheduled_run_name(run.name)
        ages.append(parsed[1] if parsed is not None else run.created or _LONG_AGO)
        if parsed is not None and parsed[0] == run.deployment:
            fired.append(parsed[1])
    return sorted(fired), min(ages) if len(ages) >= keep else _LONG_AGO


def _counted_to(stored: ScheduleStatus, now: datetime) -> datetime:
    """How far another operator has come meanwhile: it writes no status before it has counted.

    Two that have just started both pass all of it, until they see each other.
    """
    told = (stored.last_due_time, stored.skipped.last_due_time if stored.skipped is not None else None)
    return max(
        (each for each in told if each is not None and each <= now + FUTURE_TOLERANCE), default=_LONG_AGO
    )
