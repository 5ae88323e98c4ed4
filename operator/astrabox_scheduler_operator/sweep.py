"""Proves that the watch is alive: a fresh list is compared with the index, again and again."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from astrabox_scheduler_client.errors import ApiError, MalformedAnswer, NotFound
from astrabox_scheduler_client.fan_out import fan_out
from astrabox_scheduler_client.schedules import Version
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_operator.entry import Entry
from astrabox_scheduler_operator.index import ScheduleIndex
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.repeat import Tries, shuffled

SWEEP_SECONDS: Final = 30.0
RECHECK_SECONDS: Final = 10.0
"""While a difference is open: with a dead watch a schedule is known 40 s after its create at the latest."""
LOADING_SECONDS: Final = 1.0
FORGET_SECONDS: Final = 600.0
"""How often disabled schedules are looked for that went while the watch had a gap: they cost memory alone."""
LASTING_SECONDS: Final = 0.9 * RECHECK_SECONDS
_MAX_REREADS: Final = 500
_LOG = logging.getLogger(__name__)


class ScheduleLists(Protocol):
    """The reads that a sweep needs."""

    async def enabled_versions(self) -> dict[str, Version]:
        """Every enabled schedule, consistently. Raises ApiError."""
        ...

    async def uids(self) -> frozenset[str | None]:
        """Of every schedule, disabled ones too, consistently. Raises ApiError."""
        ...

    async def get(self, name: str) -> DeploymentSchedule:
        """Read one. Raises ApiError."""
        ...


@dataclass(frozen=True, slots=True)
class _Difference:
    """What a list showed and the index did not, seen first at `since` monotonic seconds."""

    listed: Version | None
    held: Version | None
    since: float


class Sweep:
    """One `sweep` at a time. A difference that lasts is the watch's fault.

    Before the index was loaded once, the watch is still bringing what there is: all that one list
    showed. What is written meanwhile does not hold it up.
    """

    def __init__(
        self, schedules: ScheduleLists, index: ScheduleIndex, clock: ServerClock, metrics: Metrics
    ) -> None:
        self._schedules = schedules
        self._index = index
        self._clock = clock
        self._metrics = metrics
        self._differing: dict[str, _Difference] = {}
        self._forgot = clock.monotonic()
        self.loaded = asyncio.Event()
        """Set once the index knows everything that some list showed, or something newer."""
        self.completed: float | None = None
        """Monotonic seconds at the end of the last successful sweep."""
        self.behind_since: float | None = None
        """Monotonic seconds since when the watch is known to have missed something, None if it is not."""
        self.last_heard: float | None = None
        """Monotonic seconds at which the watch has last brought something, None if it never has."""

    def heard(self) -> None:
        """The watch has brought something: what it missed before lies behind it."""
        self.behind_since = None
        self.last_heard = self._clock.monotonic()

    def pause(self) -> float:
        """Seconds until the next sweep."""
        if not self.loaded.is_set():
            return LOADING_SECONDS
        return RECHECK_SECONDS if self._differing else SWEEP_SECONDS

    async def sweep(self, now: datetime) -> int:
        """Compare, and read again what the watch missed; how many. Raises ApiError."""
        begun = self._clock.monotonic()
        listed = await self._schedules.enabled_versions()
        names = {entry.name for entry in self._index} | listed.keys()
        names = {name for name in names if differs(listed.get(name), self._index.get(name))}
        missing = {name for name in names if lacks(self._index.get(name), listed.get(name))}
        if not missing or (self.completed is not None and not any(map(self._still_missing, missing))):
            self.loaded.set()
        self._differing = {name: self._first_seen(name, listed.get(name), begun) for name in names}
        stale = [
            name
            for name in names
            if self.loaded.is_set() and begun - self._differing[name].since >= LASTING_SECONDS
        ]
        await self._read_all_again(stale[:_MAX_REREADS], now)
        if stale:
            self._metrics.watch_stale.inc(len(stale))
            self.behind_since = self.behind_since or self._clock.monotonic()
            _LOG.warning("the watch has missed changes", extra={"count": len(stale), "schedule": stale[0]})
        self.completed = self._clock.monotonic()
        if begun - self._forgot >= FORGET_SECONDS:
            self._forgot = begun
            await self._forget_gone()
        return len(stale)

    async def _forget_gone(self) -> None:
        known = tuple(self._index)
        try:
            there = await self._schedules.uids()
        except ApiError as error:
            _LOG.debug("schedules that are gone are forgotten the next time: %s", error)
            return
        for entry in known:
            if entry.metadata.uid not in there:
                self._index.forget(entry)

    def _first_seen(self, name: str, listed: Version | None, now: float) -> _Difference:
        known, held = self._differing.get(name), self._held(name)
        same = known is not None and (known.listed, known.held) == (listed, held)
        return known if known is not None and same else _Difference(listed, held, now)

    def _still_missing(self, name: str) -> bool:
        """Whether the watch has not brought what an earlier list showed already."""
        known = self._differing.get(name)
        if known is None or not lacks(self._index.get(name), known.listed):
            return False
        return known.listed is not None or known.held == self._held(name)

    def _held(self, name: str) -> Version | None:
        entry = self._index.get(name)
        return entry.version if entry is not None else None

    async def _read_all_again(self, names: Sequence[str], now: datetime) -> None:
        """One that cannot be read holds up no other; all stay different, and the next sweep tries again."""
        tries = Tries()

        async def read(name: str) -> None:
            if tries.given_up:
                return
            try:
                await self._read_again(name, now)
            except ApiError as error:
                _LOG.debug("a schedule cannot be read again: %s", error, extra={"schedule": name})
                tries.failed(error)
            else:
                tries.succeeded()

        await fan_out(read, shuffled(names))

    async def _read_again(self, name: str, now: datetime) -> None:
        known = self._index.get(name)
        try:
            self._index.upsert_read(await self._schedules.get(name), now, known)
        except NotFound:
            self._index.forget(known)
        except MalformedAnswer:
            return
        self._differing.pop(name, None)


def differs(listed: Version | None, entry: Entry | None) -> bool:
    """Whether the index shows something else than a list of the enabled schedules.

    What it has newer, and keeps while lists show an older one, is of a store that was restored since.
    """
    if entry is None or listed is None:
        return lacks(entry, listed)
    return entry.version != listed


def lacks(entry: Entry | None, listed: Version | None) -> bool:
    """Whether the index has not got what a list of the enabled schedules shows, nor anything newer.

    An object that cannot be read is no fault, which the list shows or not: nothing tells if it is enabled.
    """
    if entry is None:
        return listed is not None
    if listed is None:
        return entry.enabled and entry.readable
    uid, generation = entry.version
    return uid != listed[0] or generation < listed[1]
