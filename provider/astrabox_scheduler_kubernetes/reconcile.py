"""reconcile: one list, and only what differs is written.

AstraBox changes its own record before it calls `apply`, so a snapshot holds every apply that came
before it. What we know of the age of the snapshot at hand is that it was taken after this process was
configured, and a moment before the call. So a schedule is left alone if its mark says that it was
applied both since this process exists and less than a minute ago: the snapshot may be older than that
apply, whoever made it, and whether or not that process is still there (in a rolling update it soon is
not). A mark from before our own time protects nothing, not even seconds after a restart: our snapshot
is newer. What was left alone and differs may also be an apply that AstraBox took back while the
process that made it was lost; which one it is cannot be told from here, so it is not written over
with a snapshot that is old by then, but looked at again and named in the logs (`spared`).

A delete leaves a tombstone with the same mark under the schedule's name, so all of this holds for it
as well. No decision outlives a write by somebody else: what is missing is created, which fails if the
name was taken meanwhile, by a tombstone too; what is there is changed or removed in the version that
was looked at. In either case it is read and decided again. The snapshot grows older while this goes
on: a mark protects from the beginning of the call on, however long it takes, and after
`timing.reconcile` seconds nothing more is written, so that no tombstone can have gone before.

Each schedule is dealt with whatever becomes of the others; what failed is
raised at the end as one error: SchedulerUnavailable if the store failed for any (the same call may
work later), else ScheduleCapacityExceeded, else InvalidSchedule.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.errors import ApiError, Forbidden, QuotaExceeded, TooLarge
from astrabox_scheduler_crds.deletion import is_deleted, may_go
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.payload import PayloadError
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_kubernetes.errors import in_seam_words
from astrabox_scheduler_kubernetes.rules import Wanted, applied_recently, desired, differs, wanted
from astrabox_scheduler_kubernetes.seam import (
    InvalidSchedule,
    Schedule,
    ScheduleCapacityExceeded,
    SchedulerUnavailable,
)
from astrabox_scheduler_kubernetes.spared import Spared, is_other
from astrabox_scheduler_kubernetes.timing import Timing
from astrabox_scheduler_kubernetes.writing import Writing, mark_of

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
    """One pass over all schedules; `most`: enabled schedules that are accepted, None for no limit.

    `age` tells for how many seconds this process has been configured.
    """

    def __init__(self, api: SchedulerApi, timing: Timing, most: int | None, age: Callable[[], float]) -> None:
        self._api = api
        self._timing = timing
        self._most = most
        self._age = age
        self.spared: dict[str, Spared] = {}
        """What was left alone though it differs, by the name of the object."""
        self._failures: dict[str, Exception] = {}
        self._written = 0
        self._removed: list[str] = []
        self._called_at_age = age()

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
            [each for name, each in stored.items() if name not in named and not self._stays(each)],
            self._remove,
            lambda each: each.spec.deployment_id,
        )
        differing = [want for want in wants.values() if self._is_to_write(want, stored.get(want.name))]
        await self._each(
            self._within_limit(differing, wants, stored), self._put, lambda want: want.deployment_id
        )
        self._tell({each.deployment_id for each in schedules})
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
        if stored is not None and self._left_alone(want, stored):
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

    def _stays(self, stored: DeploymentSchedule) -> bool:
        """Whether what AstraBox did not list is left as it is."""
        if is_deleted(stored):
            return not may_go(stored, self._api.clock.now())
        return self._left_alone(None, stored)

    def _left_alone(self, want: Wanted | None, stored: DeploymentSchedule) -> bool:
        now, before = self._api.clock.now(), self._called_at_age
        snapshot = min(self._timing.recently, before + self._timing.clocks) + self._going_on()
        if not applied_recently(stored, now, snapshot):
            return False
        if is_other(want, stored, now):
            self.spared[stored.metadata.name] = Spared(want, mark_of(stored))
        return True

    async def _put(self, want: Wanted) -> None:
        changed = await Writing(self._api, self._timing).put(
            want, marked=False, leave=partial(self._left_alone, want)
        )
        self._written += changed  # only now: an await within the sum loses what others add meanwhile

    async def _remove(self, stored: DeploymentSchedule) -> None:
        erased = await Writing(self._api, self._timing).erase(stored.metadata.name, leave=self._stays)
        if erased and not is_deleted(stored):  # a tombstone goes in its time, AstraBox knows of that
            self._removed.append(stored.spec.deployment_id)

    def _going_on(self) -> float:
        """Seconds since the call."""
        return self._age() - self._called_at_age

    async def _each(
        self, items: Iterable[_T], act: Callable[[_T], Awaitable[None]], name: Callable[[_T], str]
    ) -> None:
        gate = asyncio.Semaphore(_AT_ONCE)
        faults = 0

        async def one(item: _T) -> None:
            nonlocal faults
            async with gate:
                if faults >= _GIVE_UP_AFTER or self._going_on() > self._timing.reconcile:
                    self._failures[name(item)] = SchedulerUnavailable("not tried: too many failures, or late")
                    return
                try:
                    await act(item)
                except _FAULTS as error:
                    faults += isinstance(error, ApiError) and (error.of_all or not error.permanent)
                    self._failed(name(item), error)

        async with asyncio.TaskGroup() as group:
            for item in items:
                group.create_task(one(item))

    def _failed(self, deployment_id: str, error: Exception) -> None:
        self._failures[deployment_id] = error
        _LOG.warning("the schedule of Deployment %.100r is not as it should be: %s", deployment_id, error)

    def _tell(self, given: set[str]) -> None:
        """One line, a warning where schedules were removed: the database may be another than is meant."""
        failed = len(given & self._failures.keys())
        parts = [f"{self._written} written", f"{len(given) - self._written - failed} unchanged"]
        if failed:
            parts.append(f"{failed} not as they should be")
        if self._removed:
            names = [f"{each:.100}" for each in sorted(self._removed)]
            more = [f"and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
            told = ", ".join([ascii(each) for each in names[:_NAMED]] + more)
            parts.append(f"{len(names)} removed that it does not have ({told})")
        schedules = "1 schedule" if len(given) == 1 else f"{len(given)} schedules"
        level = logging.WARNING if self._removed else logging.INFO
        _LOG.log(level, "AstraBox has %s: %s", schedules, ", ".join(parts))

    def _raise_failures(self) -> None:
        for kind, outcome in _KINDS:
            failed = {each: error for each, error in self._failures.items() if _kind(error) is kind}
            refused = {each: error for each, error in failed.items() if isinstance(error, Forbidden)}
            if refused and kind is SchedulerUnavailable:
                with in_seam_words(f"{_of_deployments(refused)} could not be stored"):
                    raise next(iter(refused.values()))
            if failed:
                raise kind(f"{_of_deployments(failed)} {outcome}") from next(iter(failed.values()))


def _of_deployments(ids: Collection[str]) -> str:
    names = ", ".join(f"{each:.100}" for each in list(ids)[:_NAMED])
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"The schedules of Deployment {names}{more}"


def _kind(error: Exception) -> type[Exception]:
    """What a failure is for AstraBox."""
    if isinstance(error, (ScheduleCapacityExceeded, QuotaExceeded, TooLarge)):
        return ScheduleCapacityExceeded
    if isinstance(error, (InvalidSchedule, PayloadError)):
        return InvalidSchedule
    return SchedulerUnavailable
