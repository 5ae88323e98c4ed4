"""Proof, from a read just begun, that schedules exist and are enabled (G5: nothing fires after a disable)."""

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from astrabox_scheduler_client.errors import ApiError, Unreachable
from astrabox_scheduler_client.fan_out import fan_out
from astrabox_scheduler_client.schedules import Schedules, Version
from astrabox_scheduler_crds.firing import CONFIRM_MAX_AGE_SECONDS
from astrabox_scheduler_crds.server_clock import ServerClock

ONE_BY_ONE: Final = 20
"""So many schedules are read one by one; above that all are listed."""


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What a read showed. `versions` holds only schedules that exist and are enabled: (uid, generation).

    `begun`: monotonic seconds before the read, `at`: the same in API server time (aware UTC). The
    state is that of a moment not before them. `failed`: of these nothing is known.
    """

    begun: float
    at: datetime
    versions: Mapping[str, Version]
    max_age: float = CONFIRM_MAX_AGE_SECONDS
    failed: Mapping[str, ApiError] = field(default_factory=dict)

    def fresh(self, monotonic: float) -> bool:
        """Whether a run may still be created on these grounds at `monotonic` seconds."""
        return monotonic - self.begun <= self.max_age


class ScheduleConfirm:
    """Confirms schedules: a look at each for up to `batch` names, one LIST shared by all callers above.

    The LIST is used again while it began at most `max_age` seconds ago. A look is waited for `patience`
    seconds: as long as its answer counts for the caller.
    """

    def __init__(
        self,
        schedules: Schedules,
        clock: ServerClock,
        max_age: float = CONFIRM_MAX_AGE_SECONDS,
        batch: int = ONE_BY_ONE,
        patience: float = CONFIRM_MAX_AGE_SECONDS,
    ) -> None:
        self._schedules = schedules
        self._clock = clock
        self._max_age = max_age
        self._batch = batch
        self._patience = patience
        self._all: Confirmed | None = None
        self._unheard: set[str] = set()  # whose latest look asked the cache, and failed
        self._listing = asyncio.Lock()

    async def versions(self, names: Collection[str]) -> Confirmed:
        """The versions of those of `names` that exist and are enabled. Raises ApiError if none could be read.

        One that cannot be read, or not in the time for which it would count, harms no other. That the
        answer came in time is not promised: ask `fresh` before each use.
        """
        wanted = list(dict.fromkeys(names))
        if len(wanted) > self._batch:
            whole = await self._list()
            return self._confirmed(whole.begun, whole.at, {n: whole.versions.get(n) for n in wanted})
        begun, at = self._clock.monotonic(), self._clock.now()
        found = dict(zip(wanted, await fan_out(self._look, wanted, self._batch), strict=True))
        failed = {name: answer for name, answer in found.items() if isinstance(answer, ApiError)}
        if failed and len(failed) == len(wanted):
            raise next(iter(failed.values()))
        read = {name: answer for name, answer in found.items() if not isinstance(answer, ApiError)}
        return self._confirmed(begun, at, read, failed)

    async def _look(self, name: str) -> Version | ApiError | None:
        """The answer of the API server's cache; where that had none, of what is stored, which is larger.

        A consistent list waits until the cache has caught up with the store, for seconds if its watch stands
        still. A read of one object does not ask the cache.
        """
        ask = self._schedules.stored_version if name in self._unheard else self._schedules.version
        try:
            async with asyncio.timeout(self._patience):
                found = await ask(name)
        except TimeoutError:
            late = f"confirming {name}: no answer within {self._patience:g} s"
            error: ApiError = Unreachable(late, reason="Timeout")
        except ApiError as refusal:
            error = refusal
        else:
            self._unheard.discard(name)
            return found
        self._unheard ^= {name}  # the next look goes the other way
        return error

    async def _list(self) -> Confirmed:
        # Who waits for the lock finds the result of the one before; no task outlives its caller.
        async with self._listing:
            if self._all is None or not self._all.fresh(self._clock.monotonic()):
                begun, at = self._clock.monotonic(), self._clock.now()
                self._all = self._confirmed(begun, at, await self._schedules.enabled_versions())
                self._unheard &= self._all.versions.keys()  # what is gone is never looked at again
            return self._all

    def _confirmed(
        self,
        begun: float,
        at: datetime,
        found: Mapping[str, Version | None],
        failed: Mapping[str, ApiError] | None = None,
    ) -> Confirmed:
        versions = {name: version for name, version in found.items() if version is not None}
        return Confirmed(begun, at, versions, self._max_age, failed or {})
