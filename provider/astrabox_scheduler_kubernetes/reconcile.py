"""reconcile: one list, and only what differs is written.

A schedule applied less than a minute ago is left alone: another process did that, and the snapshot
at hand may be older. Each schedule is dealt with whatever becomes of the others; what failed is
raised at the end as one error: SchedulerUnavailable if the store failed for any (the same call may
work later), else ScheduleCapacityExceeded, else InvalidSchedule.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.errors import ApiError, QuotaExceeded, TooLarge
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.payload import PayloadError
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_kubernetes.rules import Wanted, applied_recently, desired, differs, wanted
from astrabox_scheduler_kubernetes.seam import (
    InvalidSchedule,
    Schedule,
    ScheduleCapacityExceeded,
    SchedulerUnavailable,
)
from astrabox_scheduler_kubernetes.timing import Timing
from astrabox_scheduler_kubernetes.writing import Writing

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")
_T = TypeVar("_T")
_AT_ONCE: Final = 16
_GIVE_UP_AFTER: Final = 3
"""So many failures of the store, and the rest is not tried: each may take as long as a time limit."""
_NAMED: Final = 10
_FAULTS: Final = (ApiError, PayloadError, InvalidSchedule, ScheduleCapacityExceeded)
_KINDS: Final = (
    (SchedulerUnavailable, "could not be stored, because the scheduler's store is not available. Try again."),
    (ScheduleCapacityExceeded, "exceed a limit of the scheduler. All others are in place."),
    (InvalidSchedule, "are refused. All others are in place."),
)


class Reconcile:
    """One pass over all schedules; `most`: enabled schedules that are accepted, None for no limit."""

    def __init__(self, api: SchedulerApi, timing: Timing, most: int | None) -> None:
        self._api = api
        self._timing = timing
        self._most = most
        self._failures: dict[str, Exception] = {}
        self._changes = 0

    async def run(self, schedules: Sequence[Schedule]) -> None:
        """Make the stored schedules equal to these. Raises ApiError of the list, and errors of the seam."""
        listing = await self._api.schedules.list()
        stored = {each.metadata.name: each for each in listing.items}
        wants = self._encoded(schedules)
        for bad in listing.unreadable:
            if bad.name in wants:
                fault = ValueError(f"the stored one is unreadable at {', '.join(bad.fields)}")
                self._failed(wants.pop(bad.name).deployment_id, fault)
        named = wants.keys() | {deployment_key(each) for each in self._failures}
        await self._each(
            [each for name, each in stored.items() if name not in named and not self._left_alone(each)],
            self._remove,
            lambda each: each.spec.deployment_id,
        )
        differing = [want for want in wants.values() if self._is_to_write(want, stored.get(want.name))]
        await self._each(
            self._within_limit(differing, wants, stored), self._put, lambda want: want.deployment_id
        )
        _LOG.info("%d schedules reconciled, %d of them written or removed", len(schedules), self._changes)
        self._raise_failures()

    def _encoded(self, schedules: Iterable[Schedule]) -> dict[str, Wanted]:
        wants: dict[str, Wanted] = {}
        for schedule in schedules:
            try:
                want = wanted(schedule)
            except _FAULTS as error:
                self._failed(schedule.deployment_id, error)
            else:
                wants[want.name] = want
        return wants

    def _is_to_write(self, want: Wanted, stored: DeploymentSchedule | None) -> bool:
        if stored is not None and self._left_alone(stored):
            return False
        try:
            spec = desired(want, stored, self._api.clock.now())
        except _FAULTS as error:
            self._failed(want.deployment_id, error)
            return False
        return stored is None or differs(spec, stored)

    def _within_limit(
        self, differing: list[Wanted], wants: dict[str, Wanted], stored: dict[str, DeploymentSchedule]
    ) -> list[Wanted]:
        """Those that may be written: of the schedules to enable only as many as the limit leaves room for."""
        if self._most is None:
            return differing

        def enabled_already(name: str) -> bool:
            return name in stored and stored[name].spec.enabled

        room = self._most - sum(want.enabled and enabled_already(name) for name, want in wants.items())
        accepted = []
        for want in differing:
            if want.enabled and not enabled_already(want.name):
                if room <= 0:
                    reason = f"no more than {self._most} enabled schedules are accepted"
                    self._failed(want.deployment_id, ScheduleCapacityExceeded(reason))
                    continue
                room -= 1
            accepted.append(want)
        return accepted

    def _left_alone(self, stored: DeploymentSchedule) -> bool:
        return applied_recently(stored, self._api.clock.now(), self._timing.recently)

    async def _put(self, want: Wanted) -> None:
        self._changes += await Writing(self._api, self._timing).put(
            want, marked=False, leave=self._left_alone
        )

    async def _remove(self, stored: DeploymentSchedule) -> None:
        await Writing(self._api, self._timing).remove(stored.metadata.name, None, leave=self._left_alone)
        self._changes += 1

    async def _each(
        self, items: Iterable[_T], act: Callable[[_T], Awaitable[None]], name: Callable[[_T], str]
    ) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)
        faults = 0

        async def one(item: _T) -> None:
            nonlocal faults
            async with gate:
                if faults >= _GIVE_UP_AFTER:
                    self._failures[name(item)] = SchedulerUnavailable("not tried after other failures")
                    return
                try:
                    await act(item)
                except _FAULTS as error:
                    faults += isinstance(error, ApiError) and not error.permanent
                    self._failed(name(item), error)

        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(one(item))

    def _failed(self, deployment_id: str, error: Exception) -> None:
        self._failures[deployment_id] = error
        _LOG.warning("the schedule of Deployment %.100r is not as it should be: %s", deployment_id, error)

    def _raise_failures(self) -> None:
        for kind, outcome in _KINDS:
            failed = {each: error for each, error in self._failures.items() if _kind(error) is kind}
            if failed:
                names = ", ".join(f"{each:.100}" for each in list(failed)[:_NAMED])
                more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
                raise kind(f"The schedules of Deployment {names}{more} {outcome}") from next(
                    iter(failed.values())
                )


def _kind(error: Exception) -> type[Exception]:
    """What a failure is for AstraBox."""
    if isinstance(error, (ScheduleCapacityExceeded, QuotaExceeded, TooLarge)):
        return ScheduleCapacityExceeded
    if isinstance(error, (InvalidSchedule, PayloadError)):
        return InvalidSchedule
    return SchedulerUnavailable
