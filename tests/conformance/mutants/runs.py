"""Mutants of manual runs, replays, history and payloads."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from astrabox.seams.scheduler import Schedule, ScheduledRun
from astrabox.testing.memory_store import StoredRun, StoredSchedule
from tests.conformance.mutants.base import Mutant, kills


class EnqueueMutant(Mutant):
    """Lets a mutant do something before and after `enqueue`."""

    async def before(self, run: dict[str, Any]) -> None:
        pass

    async def after(self, run: ScheduledRun) -> ScheduledRun:
        return run

    async def enqueue(
        self,
        deployment_id: str,
        payload: Mapping[str, Any],
        *,
        trigger: Literal["manual", "replay"],
        replayed_from_run_id: str | None = None,
    ) -> ScheduledRun:
        arguments = {"payload": payload, "trigger": trigger, "replayed_from_run_id": replayed_from_run_id}
        await self.before(arguments | {"deployment_id": deployment_id, "change": arguments.update})
        return await self.after(await super().enqueue(deployment_id, **arguments))  # type: ignore[arg-type]


class EnqueueWaits(EnqueueMutant):
    """Returns when the run has ended."""

    guarantee = "G6"
    killed_by = kills(test_enqueue_returns_when_the_record_is_saved="enqueue waits for the handler")

    async def after(self, run: ScheduledRun) -> ScheduledRun:
        await asyncio.wait(set(self._tasks.values()))
        return run


class EnqueueReturnsEarly(Mutant):
    """Returns before the record is saved."""

    guarantee = "G6"
    killed_by = kills(test_enqueue_returns_when_the_record_is_saved="before the record was saved")

    async def insert(self, run: StoredRun) -> StoredRun:
        task = asyncio.create_task(self._insert_later(run))
        self._tasks[f"insert {run.run_id}"] = task
        return run

    async def _insert_later(self, run: StoredRun) -> None:
        await asyncio.sleep(0.02)
        await super().insert(run)


class EnqueueEnables(EnqueueMutant):
    """Enables the Schedule that is run now."""

    guarantee = "G6"
    killed_by = kills(test_enqueue_changes_no_time_rule="enqueue has changed a time rule")

    async def before(self, run: dict[str, Any]) -> None:
        rule = await self.store.schedule(run["deployment_id"])
        if rule:
            await self.store.put_schedule(replace(rule, enabled=True))


class EnqueueMakesARule(EnqueueMutant):
    """Makes a Schedule for a Deployment that has none."""

    guarantee = "G6"
    killed_by = kills(test_enqueue_changes_no_time_rule="enqueue has changed a time rule")

    async def before(self, run: dict[str, Any]) -> None:
        if not await self.store.schedule(run["deployment_id"]):
            await self.apply(Schedule(run["deployment_id"], "* * * * *", "UTC", True, run["payload"]))


class EnqueueReplacesThePayload(EnqueueMutant):
    """Takes a manual run's payload for the Schedule's new one."""

    guarantee = "G6"
    killed_by = kills(test_enqueue_changes_no_time_rule="the payload has changed by a manual run")

    async def before(self, run: dict[str, Any]) -> None:
        rule = await self.store.schedule(run["deployment_id"])
        if rule:
            await self.store.put_schedule(replace(rule, payload_text=json.dumps(run["payload"])))


class EnqueueMergesEqualRuns(Mutant):
    """Takes two manual runs of one Deployment for one."""

    guarantee = "G6"
    killed_by = kills(test_every_enqueue_is_a_run="expected 5 runs")

    async def insert(self, run: StoredRun) -> StoredRun:
        name = run.run_id if run.scheduled_for else f"manual {run.deployment_id}"
        return await super().insert(replace(run, run_id=name))


class ReplayTakesTheCurrentPayload(EnqueueMutant):
    """Replays with what the Schedule has now."""

    guarantee = "G6"
    killed_by = kills(test_replay_hands_back_the_payload_of_its_source="the payload has changed in a replay")

    async def before(self, run: dict[str, Any]) -> None:
        rule = await self.store.schedule(run["deployment_id"])
        if rule and run["trigger"] == "replay":
            run["change"](payload=json.loads(rule.payload_text))


class ReplayForgetsItsSource(EnqueueMutant):
    """Does not keep which run a replay repeats."""

    guarantee = "G6"
    killed_by = kills(test_replay_hands_back_the_payload_of_its_source="source is not in the ledger")

    async def before(self, run: dict[str, Any]) -> None:
        run["change"](replayed_from_run_id=None)


class ReplayReusesTheRunId(Mutant):
    """Runs the source again under its id."""

    guarantee = "G6"
    killed_by = kills(test_replay_hands_back_the_payload_of_its_source="expected 2 runs")

    async def insert(self, run: StoredRun) -> StoredRun:
        return await super().insert(replace(run, run_id=run.replayed_from_run_id or run.run_id))


class HistoryMutant(Mutant):
    """Lets a mutant list runs in its own way."""

    def pick(self, runs: list[ScheduledRun], limit: int) -> list[ScheduledRun]:
        raise NotImplementedError

    async def list_runs(self, deployment_id: str, *, limit: int = 50) -> list[ScheduledRun]:
        with self.errors():
            runs = await self.store.runs(deployment_id)
        return self.pick([run.row() for run in runs[::-1]], limit)


class OldestFirst(HistoryMutant):
    """Lists in the order in which the runs were made."""

    guarantee = "G7"
    killed_by = kills(test_history_is_newest_first_over_all_triggers="not newest first")

    def pick(self, runs: list[ScheduledRun], limit: int) -> list[ScheduledRun]:
        return runs[: max(1, min(limit, 200))][::-1]


class SortedByTrigger(HistoryMutant):
    """Lists each trigger's runs newest first, one trigger after the other."""

    guarantee = "G7"
    killed_by = kills(test_history_is_newest_first_over_all_triggers="not newest first")

    def pick(self, runs: list[ScheduledRun], limit: int) -> list[ScheduledRun]:
        return sorted(runs, key=lambda run: run.trigger)[: max(1, min(limit, 200))]


class SortedByDueTime(HistoryMutant):
    """Lists by due time, and runs without one at the end."""

    guarantee = "G7"
    killed_by = kills(test_history_is_newest_first_over_all_triggers="not newest first")

    def pick(self, runs: list[ScheduledRun], limit: int) -> list[ScheduledRun]:
        ordered = sorted(
            runs, key=lambda r: r.scheduled_for.timestamp() if r.scheduled_for else 0, reverse=True
        )
        return ordered[: max(1, min(limit, 200))]


class ScheduledRunsOnly(HistoryMutant):
    """Leaves manual runs and replays out of the history."""

    guarantee = "G7"
    killed_by = kills(test_history_is_newest_first_over_all_triggers="expected 2 runs at their end")

    def pick(self, runs: list[ScheduledRun], limit: int) -> list[ScheduledRun]:
        return [run for run in runs if run.trigger == "schedule"][: max(1, min(limit, 200))]


class IgnoresTheLimit(HistoryMutant):
    """Lists everything."""

    guarantee = "G7"
    killed_by = kills(
        test_history_is_newest_first_over_all_triggers="limit=2 gives 6 runs",
        test_limit_is_fifty_by_default_and_two_hundred_at_most="give [203, 203, 203]",
    )

    def pick(self, runs: list[ScheduledRun], limit: int) -> list[ScheduledRun]:
        return runs


class DoesNotClampTheLimit(HistoryMutant):
    """Takes any limit as it is."""

    guarantee = "G7"
    killed_by = kills(
        test_history_is_newest_first_over_all_triggers="limit=0 gives 0 runs",
        test_limit_is_fifty_by_default_and_two_hundred_at_most="give [50, 200, 201]",
    )

    def pick(self, runs: list[ScheduledRun], limit: int) -> list[ScheduledRun]:
        return runs[:limit]


class MixesDeployments(Mutant):
    """Lists the runs of ids that differ only by case together."""

    guarantee = "G7"
    killed_by = kills(test_history_is_newest_first_over_all_triggers="expected 4 runs, found")

    async def list_runs(self, deployment_id: str, *, limit: int = 50) -> list[ScheduledRun]:
        name = deployment_id.lower()
        runs = [run for run in await self.store.runs() if run.deployment_id.lower() == name]
        return [run.row() for run in runs[::-1][: max(1, min(limit, 200))]]


class DeleteDropsHistory(Mutant):
    """Removes the runs together with the Schedule."""

    guarantee = "G7"
    killed_by = kills(test_delete_keeps_history_and_fires_nothing="delete has changed the history")

    async def delete(self, deployment_id: str) -> None:
        await super().delete(deployment_id)
        for run in await self.store.runs(deployment_id):
            self.store._runs.pop(run.run_id)


class PayloadMutant(Mutant):
    """Lets a mutant change the text in which a payload is stored."""

    def store_text(self, text: str) -> str:
        raise NotImplementedError

    async def insert(self, run: StoredRun) -> StoredRun:
        return await super().insert(replace(run, payload_text=self.store_text(run.payload_text)))


class WholeFloatsBecomeIntegers(PayloadMutant):
    """Stores 1.0 as 1, as a structured field of some stores does."""

    guarantee = "G8"
    killed_by = kills(test_payload_is_handed_back_value_for_value="the payload has changed in the ledger")

    def store_text(self, text: str) -> str:
        value = json.loads(text, parse_float=lambda t: int(float(t)) if float(t).is_integer() else float(t))
        return json.dumps(value)


class IntegersBecomeFloats(PayloadMutant):
    """Stores integers in 64 bits of floating point."""

    guarantee = "G8"
    killed_by = kills(test_payload_is_handed_back_value_for_value="the payload has changed in the ledger")

    def store_text(self, text: str) -> str:
        return json.dumps(json.loads(text, parse_int=lambda t: int(float(t))))


class SortsKeys(PayloadMutant):
    """Stores objects in the order of their keys."""

    guarantee = "G8"
    killed_by = kills(test_payload_is_handed_back_value_for_value="the payload has changed in the ledger")

    def store_text(self, text: str) -> str:
        return json.dumps(json.loads(text), sort_keys=True)


class DropsNulls(PayloadMutant):
    """Stores no key whose value is null."""

    guarantee = "G8"
    killed_by = kills(test_payload_is_handed_back_value_for_value="the payload has changed in the ledger")

    def store_text(self, text: str) -> str:
        return json.dumps({key: value for key, value in json.loads(text).items() if value is not None})


class TrimsStrings(PayloadMutant):
    """Stores strings without blanks at their ends."""

    guarantee = "G8"
    killed_by = kills(test_payload_is_handed_back_value_for_value="the payload has changed in the ledger")

    def store_text(self, text: str) -> str:
        pairs = json.loads(text).items()
        return json.dumps({key: v.strip() if isinstance(v, str) else v for key, v in pairs})


class EditRewritesHistory(Mutant):
    """Gives all runs the payload of the edited Schedule."""

    guarantee = "G8"
    killed_by = kills(test_edit_rewrites_no_run_that_exists="an edit has rewritten runs")

    async def apply(self, schedule: Schedule) -> None:
        await super().apply(schedule)
        for run in await self.store.runs(schedule.deployment_id):
            await self.store.update_run(run.run_id, payload_text=json.dumps(schedule.payload))


class KeepsTheCallersPayload(Mutant):
    """Keeps a reference to the payload instead of a copy."""

    guarantee = "G8"
    killed_by = kills(
        test_later_changes_by_caller_or_handler_do_not_reach_the_record="has reached a later call",
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.given: dict[str, Mapping[str, Any]] = {}

    async def apply(self, schedule: Schedule) -> None:
        await super().apply(schedule)
        self.given[schedule.deployment_id] = schedule.payload

    async def record_due(self, rule: StoredSchedule, due: datetime) -> None:
        text = json.dumps(self.given[rule.deployment_id])
        await super().record_due(replace(rule, payload_text=text), due)
