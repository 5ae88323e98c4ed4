"""Mutants of recovery and of `stop`."""

import asyncio
from dataclasses import replace
from typing import Any

from astrabox.seams.scheduler import AdmittedTurn
from astrabox.testing.memory_store import StoredRun
from tests.conformance.mutants.base import Mutant, kills


class DoesNotRecover(Mutant):
    """Starts without a look at what was left."""

    guarantee = "G4"
    killed_by = kills(
        test_run_in_its_first_call_goes_on_after_a_restart="expected 1 runs at their end",
        test_run_in_its_second_call_goes_on_with_its_session="expected 1 runs at their end",
        test_run_waiting_for_a_retry_goes_on_after_a_restart="expected 1 runs at their end",
        test_manual_run_goes_on_after_a_restart="expected 1 runs at their end",
        test_live_replica_takes_over_from_a_stopped_one="expected 1 runs at their end",
    )

    async def adopt(self) -> None:
        pass


class RecoversScheduledRunsOnly(Mutant):
    """Leaves manual runs and replays where they are."""

    guarantee = "G4"
    killed_by = kills(test_manual_run_goes_on_after_a_restart="expected 1 runs at their end")

    def _dispatch_soon(self, run_id: str) -> None:
        if not run_id.startswith("manual") or self.identity == "replica-1":
            super()._dispatch_soon(run_id)


class RecoversAtStartOnly(Mutant):
    """Declares recovery by any replica, and does not take over while it lives."""

    guarantee = "G4"
    killed_by = kills(test_live_replica_takes_over_from_a_stopped_one="expected 1 runs at their end")
    started: bool = False

    async def adopt(self) -> None:
        if not self.started:
            self.started = True
            await super().adopt()


class RecoversWithoutTheSession(Mutant):
    """Forgets the saved Session when it takes over."""

    guarantee = "G4"
    killed_by = kills(
        test_run_in_its_second_call_goes_on_with_its_session="was started again after the restart",
        test_run_waiting_for_a_retry_goes_on_after_a_restart="was started again after the restart",
        test_live_replica_takes_over_from_a_stopped_one="was started again by the other replica",
    )

    async def adopt(self) -> None:
        for run in await self.store.runs():
            if not run.ended and run.owner not in self.deployment.live:
                await self.store.update_run(run.run_id, session_id=None)
        await super().adopt()


class RecoversUnderANewId(Mutant):
    """Makes a new run of one that was cut off."""

    guarantee = "G4"
    killed_by = kills(test_run_in_its_first_call_goes_on_after_a_restart="expected 1 runs, found")

    async def adopt(self) -> None:
        for run in await self.store.runs():
            if not run.ended and run.owner not in self.deployment.live:
                await self.store.update_run(run.run_id, status="cancelled")
                await self.insert(replace(run, run_id=run.run_id + "+"))


class RecoversWithAnotherInvocation(Mutant):
    """Calls a run that it takes over a replay of itself."""

    guarantee = "G4"
    killed_by = kills(test_run_in_its_first_call_goes_on_after_a_restart="the invocation has changed")

    async def adopt(self) -> None:
        for run in await self.store.runs():
            if not run.ended and run.owner not in self.deployment.live:
                await self.store.update_run(run.run_id, replayed_from_run_id=run.run_id)
        await super().adopt()


class StopFailsWhatIsInFlight(Mutant):
    """Marks failed what it has cut off."""

    guarantee = "G10"
    killed_by = kills(
        test_run_in_its_first_call_goes_on_after_a_restart="the run ended failed",
        test_run_in_its_second_call_goes_on_with_its_session="the run ended failed",
    )

    async def call(self, run: StoredRun) -> AdmittedTurn:
        try:
            return await super().call(run)
        except asyncio.CancelledError:
            await self.store.update_run(run.run_id, status="failed", error="stopped")
            raise


class StopWaitsForEver(Mutant):
    """Waits for calls in flight without a bound."""

    guarantee = "G10"
    killed_by = kills(test_run_in_its_first_call_goes_on_after_a_restart="stop() has not returned within")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options | {"drain": 1e6})


class StopLeavesTasksRunning(Mutant):
    """Returns from stop, and goes on calling the handler."""

    guarantee = "G10"
    max_attempts = 100
    killed_by = kills(test_no_run_begins_once_stop_has_returned="a stopped replica has called its handler")

    async def stop(self) -> None:
        self.deployment.live.pop(self.identity, None)


class StopDropsWhatEndsDuringTheDrain(Mutant):
    """Cancels a run although its last call has just succeeded."""

    guarantee = "G10"
    killed_by = kills(test_call_in_flight_at_stop_is_not_lost="the run ended cancelled")

    async def call(self, run: StoredRun) -> AdmittedTurn:
        turn = await super().call(run)
        if self._stopping.is_set():
            await self.store.update_run(run.run_id, status="cancelled")
            raise asyncio.CancelledError
        return turn


class StopCancelsWhatIsLeft(Mutant):
    """Ends every run that it could not finish."""

    guarantee = "G10"
    killed_by = kills(test_run_waiting_for_a_retry_goes_on_after_a_restart="the run ended cancelled")

    async def stop(self) -> None:
        await super().stop()
        for run in await self.store.runs():
            if not run.ended:
                await self.store.update_run(run.run_id, status="cancelled")


class StopTwiceFails(Mutant):
    """Takes a second stop for a fault."""

    guarantee = "G10"
    killed_by = kills(test_stop_twice_is_harmless="stop() has failed")

    async def stop(self) -> None:
        if self._stopping.is_set():
            raise RuntimeError("not running")
        await super().stop()
