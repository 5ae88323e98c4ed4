"""Mutants of errors, and of the life cycle."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from astrabox.seams.scheduler import (
    InvalidSchedule,
    RunPermanentError,
    Schedule,
    SchedulerProperties,
    SchedulerUnavailable,
)
from astrabox.testing.memory_store import StoredRun, StoredSchedule, StoreFaultError
from tests.conformance.mutants.base import Mutant, kills


class LeaksTheStoresErrors(Mutant):
    """Lets errors of the store through as they are."""

    guarantee = "G9"
    killed_by = kills(test_store_fault_is_unavailable="apply without a store: raised StoreFaultError")

    @contextmanager
    def errors(self) -> Iterator[None]:
        yield


class QuotesTheStore(Mutant):
    """Raises the right error in the words of the store."""

    guarantee = "G9"
    killed_by = kills(test_store_fault_is_unavailable="of an engine is in the error")

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except StoreFaultError as error:
            raise SchedulerUnavailable(f"not available: {error}") from error


class HidesTheCause(Mutant):
    """Chains nothing that the logs could show."""

    guarantee = "G9"
    killed_by = kills(test_store_fault_is_unavailable="the cause is not chained")

    @contextmanager
    def errors(self) -> Iterator[None]:
        try:
            yield
        except StoreFaultError:
            raise SchedulerUnavailable("not available") from None


class QuotesTheEngineInARefusal(Mutant):
    """Names the machinery that has refused an expression."""

    guarantee = "G9"
    killed_by = kills(
        test_invalid_cron_is_refused="of an engine is in the error",
        test_invalid_zone_is_refused="of an engine is in the error",
    )

    def check(self, schedule: Schedule) -> None:
        try:
            super().check(schedule)
        except InvalidSchedule as error:
            raise InvalidSchedule(f"admission webhook, HTTP 422: {error}") from error


class AcceptsAnyRule(Mutant):
    """Checks an expression only when it is due."""

    guarantee = "G9"
    killed_by = kills(
        test_invalid_cron_is_refused="no error was raised",
        test_invalid_zone_is_refused="no error was raised",
        test_refused_apply_leaves_the_old_state="no error was raised",
    )

    def check(self, schedule: Schedule) -> None:
        pass


class AcceptsBadRulesOfDisabledSchedules(Mutant):
    """Checks only what is enabled."""

    guarantee = "G9"
    killed_by = kills(test_invalid_cron_is_refused="no error was raised")

    def check(self, schedule: Schedule) -> None:
        if schedule.enabled:
            super().check(schedule)


class AcceptsSixFields(Mutant):
    """Takes a sixth field for seconds."""

    guarantee = "G9"
    killed_by = kills(test_invalid_cron_is_refused="cron '* * * * * *': no error was raised")

    def check(self, schedule: Schedule) -> None:
        if len(schedule.cron.split()) != 6:
            super().check(schedule)


class RefusesInItsOwnWay(Mutant):
    """Raises ValueError for a rule that it refuses."""

    guarantee = "G9"
    killed_by = kills(test_invalid_cron_is_refused="raised ValueError")

    def check(self, schedule: Schedule) -> None:
        try:
            super().check(schedule)
        except InvalidSchedule as error:
            raise ValueError(str(error)) from error


class WritesBeforeItChecks(Mutant):
    """Leaves the new state behind when it refuses it."""

    guarantee = "G9"
    killed_by = kills(test_refused_apply_leaves_the_old_state="a refused apply has changed the state")

    async def apply(self, schedule: Schedule) -> None:
        kept = Schedule(schedule.deployment_id, "* * * * *", "UTC", True, schedule.payload)
        with suppress(StoreFaultError):
            await self.store.put_schedule(StoredSchedule.of(kept))
        await super().apply(schedule)


class DeletesBeforeItChecks(Mutant):
    """Replaces a Schedule by removing it first."""

    guarantee = "G9"
    killed_by = kills(
        test_refused_apply_leaves_the_old_state="a refused apply has changed the state: [[], []]"
    )

    async def apply(self, schedule: Schedule) -> None:
        with self.errors():
            await self.store.delete_schedule(schedule.deployment_id)
        await super().apply(schedule)


class WritesThoughItFails(Mutant):
    """Changes the state although it says that the store is not available."""

    guarantee = "G9"
    killed_by = kills(test_store_fault_is_unavailable="a call that failed has changed the state")

    async def apply(self, schedule: Schedule) -> None:
        self.check(schedule)
        self.store._schedules[schedule.deployment_id] = StoredSchedule.of(schedule)
        await super().apply(schedule)


class FailsARunWithTheStore(Mutant):
    """Gives a run up when the store is away for a moment."""

    guarantee = "G9"
    killed_by = kills(test_run_outlives_a_store_fault="the run is failed")

    async def attempt(self, run: StoredRun) -> bool:
        try:
            return await super().attempt(run)
        except StoreFaultError:
            await asyncio.sleep(0.2)
            return await self.fail(run, RunPermanentError("the store was away"))


class IgnoresItsCapacity(Mutant):
    """Declares a limit and does not keep it."""

    guarantee = "G9"
    active_limit = 2
    killed_by = kills(test_capacity_is_kept="one Schedule too many: no error was raised")

    async def check_capacity(self, schedule: Schedule) -> None:
        await self.store.schedules()


class RefusesForCapacityInItsOwnWay(Mutant):
    """Says that a limit is used up with the error for a bad rule."""

    guarantee = "G9"
    active_limit = 2
    killed_by = kills(test_capacity_is_kept="one Schedule too many: raised InvalidSchedule")

    async def check_capacity(self, schedule: Schedule) -> None:
        try:
            await super().check_capacity(schedule)
        except Exception as error:
            raise InvalidSchedule("too many") from error


class ConfigureRunsALoop(Mutant):
    """Connects within configure, by an event loop of its own."""

    guarantee = "G10"
    killed_by = kills(test_configure_is_synchronous="does not work inside a running event loop")

    def configure(self, *, repository_backend: Any) -> None:
        connecting = asyncio.sleep(0)
        try:
            asyncio.run(connecting)
        finally:
            connecting.close()


class DeclaresNonsense(Mutant):
    """Declares a limit of no Schedules."""

    guarantee = "G10"
    killed_by = kills(test_properties_are_declared="no such limit: 0")

    @property
    def properties(self) -> SchedulerProperties:
        return SchedulerProperties("cluster", 0, 0)


class DeclaresOtherwiseLater(Mutant):
    """Changes its properties after the start."""

    guarantee = "G10"
    killed_by = kills(test_properties_are_declared="the properties have changed")

    @property
    def properties(self) -> SchedulerProperties:
        return SchedulerProperties("cluster", None, len(self.deployment.live))


class ReconcileOnlyAdds(Mutant):
    """Keeps Schedules that AstraBox no longer has."""

    guarantee = "G10"
    killed_by = kills(
        test_reconcile_makes_the_stored_schedules_equal="other Schedules fire than AstraBox has"
    )

    async def reconcile(self, schedules: Sequence[Schedule]) -> None:
        for rule in schedules:
            await self.apply(rule)


class ReconcileOnlyRemoves(Mutant):
    """Takes what is stored for right, as long as AstraBox has it, too."""

    guarantee = "G10"
    killed_by = kills(
        test_reconcile_makes_the_stored_schedules_equal="other Schedules fire than AstraBox has"
    )

    async def reconcile(self, schedules: Sequence[Schedule]) -> None:
        known = {rule.deployment_id for rule in await self.store.schedules()}
        await super().reconcile([rule for rule in schedules if rule.deployment_id in known])


class ReconcileKeepsTheOldPayload(Mutant):
    """Compares expression and zone, and not the payload."""

    guarantee = "G10"
    killed_by = kills(test_reconcile_makes_the_stored_schedules_equal="has not taken the new payload")

    async def reconcile(self, schedules: Sequence[Schedule]) -> None:
        before = {rule.deployment_id: rule for rule in await self.store.schedules()}
        await super().reconcile(schedules)
        for rule in schedules:
            old = before.get(rule.deployment_id)
            if old and (old.cron, old.timezone, old.enabled) == (rule.cron, rule.timezone, rule.enabled):
                await self.store.put_schedule(old)


class ReconcileCountsARestart(Mutant):
    """Begins the ledger anew."""

    guarantee = "G10"
    killed_by = kills(test_reconcile_of_what_is_there_changes_nothing="at their end, found []")

    async def reconcile(self, schedules: Sequence[Schedule]) -> None:
        await super().reconcile(schedules)
        for task in list(self._tasks.values()):
            task.cancel()
        self.store._runs.clear()


class ReconcileWantsToBeAlone(Mutant):
    """Takes another replica that reconciles for a fault."""

    guarantee = "G10"
    killed_by = kills(test_two_replicas_reconcile_at_once="replicas at once: SchedulerUnavailable")
    busy: bool = False

    async def reconcile(self, schedules: Sequence[Schedule]) -> None:
        if any(isinstance(other, type(self)) and other.busy for other in self.deployment.live.values()):
            raise SchedulerUnavailable("somebody else is at work")
        self.busy = True
        await super().reconcile(schedules)
        self.busy = False
