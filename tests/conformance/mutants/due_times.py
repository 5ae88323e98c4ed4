"""Mutants of when a run comes into being, and how often."""

import uuid
from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from astrabox.seams.scheduler import Schedule
from astrabox.testing.memory_store import StoredRun, StoredSchedule
from tests.conformance.mutants.base import Mutant, kills


class MergesDueTimes(Mutant):
    """Runs only the last of several due times that are met together."""

    guarantee = "G1"
    killed_by = kills(test_due_times_are_not_merged="expected 3 runs")

    async def fire(self, deployment_id: str, start: datetime, end: datetime) -> None:
        rule = await self.store.schedule(deployment_id)
        if rule and rule.enabled:
            await self.record_due(rule, list(self.calendar.between(rule.cron, rule.timezone, start, end))[-1])


class BackfillsAfterEnable(Mutant):
    """Makes up for what fell due while disabled."""

    guarantee = "G1"
    killed_by = kills(test_due_times_are_skipped_while_disabled="fired other due times than while enabled")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.missed: list[tuple[datetime, datetime]] = []

    async def fire(self, deployment_id: str, start: datetime, end: datetime) -> None:
        rule = await self.store.schedule(deployment_id)
        if rule and not rule.enabled:
            self.missed.append((start, end))
        await super().fire(deployment_id, start, end)

    async def apply(self, schedule: Schedule) -> None:
        await super().apply(schedule)
        if schedule.enabled:
            for start, end in self.missed:
                await self.fire(schedule.deployment_id, start, end)


class BackfillsAfterStart(Mutant):
    """Makes up for what fell due while no process was running."""

    guarantee = "G1"
    killed_by = kills(test_due_times_are_skipped_while_no_process_runs="expected 1 runs")

    async def fire(self, deployment_id: str, start: datetime, end: datetime) -> None:
        rule = await self.store.schedule(deployment_id)
        if rule and rule.enabled:
            for due in self.calendar.between(rule.cron, rule.timezone, start, end):
                await self.record_due(rule, due)


class SkipsOverlap(Mutant):
    """Drops a due time while an earlier run of the Deployment goes on."""

    guarantee = "G1"
    killed_by = kills(test_due_time_fires_while_earlier_runs_go_on="3 due times gave 1 runs")

    async def record_due(self, rule: StoredSchedule, due: datetime) -> None:
        if all(run.ended for run in await self.store.runs(rule.deployment_id)):
            await super().record_due(rule, due)


class IgnoresZone(Mutant):
    """Reads every expression on the UTC clock."""

    guarantee = "G1"
    killed_by = kills(test_due_times_follow_the_zone="the zone was not followed")

    async def apply(self, schedule: Schedule) -> None:
        self.check(schedule)
        await super().apply(replace(schedule, timezone="UTC"))


class LocalDueTimes(Mutant):
    """Gives due times as aware datetimes of the Schedule's zone."""

    guarantee = "G1"
    killed_by = kills(test_due_times_follow_the_zone="not an aware UTC datetime")

    async def record_due(self, rule: StoredSchedule, due: datetime) -> None:
        await super().record_due(rule, due.astimezone(ZoneInfo(rule.timezone)))


class NaiveDueTimes(Mutant):
    """Gives due times as naive datetimes."""

    guarantee = "G1"
    killed_by = kills(test_due_time_starts_a_run="not an aware UTC datetime")

    async def record_due(self, rule: StoredSchedule, due: datetime) -> None:
        await super().record_due(rule, due.replace(tzinfo=None))


class CollapsesBlanksWrongly(Mutant):
    """Splits the expression at single spaces only, and then fires nothing."""

    guarantee = "G1"
    killed_by = kills(test_blanks_between_fields_do_not_matter="expected 1 runs")

    async def record_due(self, rule: StoredSchedule, due: datetime) -> None:
        if len(rule.cron.split(" ")) == 5:
            await super().record_due(rule, due)


class RandomRunIds(Mutant):
    """Gives each firing of a due time an id of its own."""

    guarantee = "G2"
    killed_by = kills(
        test_due_time_fired_twice_is_one_run="expected 1 runs",
        test_due_time_fired_at_once_by_many_is_one_run="expected 1 runs",
        test_due_time_fired_by_two_replicas_is_one_run="expected 1 runs",
        test_due_time_fired_again_after_a_restart_is_one_run="a restart has changed the ledger",
        test_due_time_stays_run_when_the_schedule_is_made_anew="one due time gave 2 runs",
        test_reconcile_of_what_is_there_changes_nothing="expected 1 runs",
    )

    async def insert(self, run: StoredRun) -> StoredRun:
        return await super().insert(replace(run, run_id=str(uuid.uuid4())))


class ReadsThenWrites(Mutant):
    """Looks whether a due time has been run, and inserts then."""

    guarantee = "G2"
    killed_by = kills(
        test_due_time_fired_at_once_by_many_is_one_run="expected 1 runs",
        test_due_time_fired_by_two_replicas_is_one_run="expected 1 runs",
    )

    async def insert(self, run: StoredRun) -> StoredRun:
        if run.scheduled_for:
            for other in await self.store.runs(run.deployment_id):
                if other.scheduled_for == run.scheduled_for:
                    return other
            run = replace(run, run_id=str(uuid.uuid4()))
        return await super().insert(run)


class OnceOnlyInItsOwnProcess(Mutant):
    """Remembers due times in the process instead of in the store."""

    guarantee = "G2"
    killed_by = kills(
        test_due_time_fired_by_two_replicas_is_one_run="expected 1 runs",
        test_due_time_fired_again_after_a_restart_is_one_run="a restart has changed the ledger",
    )

    async def insert(self, run: StoredRun) -> StoredRun:
        return await super().insert(replace(run, run_id=f"{run.run_id} {self.identity}"))


class OnceOnlyWhileUnfinished(Mutant):
    """Frees a due time as soon as its run has ended."""

    guarantee = "G2"
    killed_by = kills(test_due_time_fired_twice_is_one_run="expected 1 runs")

    async def insert(self, run: StoredRun) -> StoredRun:
        taken = await self.store.run(run.run_id)
        if taken and taken.ended:
            run = replace(run, run_id=f"{run.run_id} {uuid.uuid4()}")
        return await super().insert(run)


class DeleteFreesDueTimes(Mutant):
    """Runs a due time again for a Schedule that was deleted and made anew."""

    guarantee = "G2"
    killed_by = kills(test_due_time_stays_run_when_the_schedule_is_made_anew="one due time gave 2 runs")
    made: int = 0

    async def delete(self, deployment_id: str) -> None:
        self.made += 1
        await super().delete(deployment_id)

    async def insert(self, run: StoredRun) -> StoredRun:
        return await super().insert(replace(run, run_id=f"{run.run_id} {self.made}"))


class FoldsCaseOfIds(Mutant):
    """Builds run ids from the Deployment id in lower case."""

    guarantee = "G2"
    killed_by = kills(test_any_string_is_a_deployment_id="expected 1 runs")

    async def insert(self, run: StoredRun) -> StoredRun:
        return await super().insert(replace(run, run_id=run.run_id.lower()))


class DisabledStillFires(Mutant):
    """Does not look whether the Schedule is enabled."""

    guarantee = "G5"
    killed_by = kills(
        test_disabled_schedule_fires_nothing="a disabled Schedule has fired",
        test_due_times_are_skipped_while_disabled="fired other due times than while enabled",
    )

    async def fire(self, deployment_id: str, start: datetime, end: datetime) -> None:
        rule = await self.store.schedule(deployment_id)
        if rule and self.identity in self.deployment.live:
            for due in self.calendar.between(rule.cron, rule.timezone, start, end):
                await self.record_due(rule, due)


class DeletedStillFires(Mutant):
    """Forgets to remove the time rule."""

    guarantee = "G5"
    killed_by = kills(test_delete_keeps_history_and_fires_nothing="a deleted Schedule has fired")

    async def delete(self, deployment_id: str) -> None:
        pass


class DeleteOfUnknownFails(Mutant):
    """Raises if there is nothing to delete."""

    guarantee = "G5"
    killed_by = kills(test_delete_of_an_unknown_schedule_is_no_error="delete of an unknown Schedule")

    async def delete(self, deployment_id: str) -> None:
        if not await self.store.schedule(deployment_id):
            raise LookupError(deployment_id)
        await super().delete(deployment_id)


class DisableCancelsRuns(Mutant):
    """Ends what is in flight together with the rule."""

    guarantee = "G5"
    killed_by = kills(
        test_run_in_flight_outlives_disable_and_delete="a run in flight at disable is cancelled"
    )

    async def apply(self, schedule: Schedule) -> None:
        await super().apply(schedule)
        if not schedule.enabled:
            for run in await self.store.runs(schedule.deployment_id):
                self._tasks[run.run_id].cancel()
                await self.store.update_run(run.run_id, status="cancelled")
