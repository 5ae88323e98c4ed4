"""Mutants of the calls to the handler, and of recovery."""

import asyncio
from dataclasses import replace
from typing import Any

from astrabox.seams.scheduler import AdmittedTurn, RunInvocation, RunPermanentError
from astrabox.testing.memory_store import StoredRun
from tests.conformance.mutants.base import Mutant, kills


class AdmitsFirst(Mutant):
    """Admits the turn to a Session that it starts only then."""

    guarantee = "G3"
    killed_by = kills(test_session_is_saved_before_the_turn_is_admitted="other calls than one of each")

    async def call(self, run: StoredRun) -> AdmittedTurn:
        assert self._handler is not None
        turn = await self._handler.admit_turn(run.invocation(), "")
        session_id = await self._handler.start_session(run.invocation())
        await self.store.update_run(run.run_id, session_id=session_id)
        return turn


class SavesTheSessionLate(Mutant):
    """Saves the Session together with the turn."""

    guarantee = "G3"
    killed_by = kills(
        test_session_is_saved_before_the_turn_is_admitted="the Session was not saved first",
        test_failing_admit_turn_is_retried_with_the_saved_session="a saved Session was started again",
        test_run_in_its_second_call_goes_on_with_its_session="not saved before admit_turn",
    )

    async def call(self, run: StoredRun) -> AdmittedTurn:
        assert self._handler is not None
        session_id = await self._handler.start_session(run.invocation())
        turn = await self._handler.admit_turn(run.invocation(), session_id)
        await self.store.update_run(run.run_id, session_id=session_id)
        return turn


class AdmitsToAnotherSession(Mutant):
    """Admits the turn to a Session of its own making."""

    guarantee = "G3"
    killed_by = kills(
        test_session_is_saved_before_the_turn_is_admitted="the turn went to another Session",
    )

    async def call(self, run: StoredRun) -> AdmittedTurn:
        assert self._handler is not None
        session_id = await self._handler.start_session(run.invocation())
        await self.store.update_run(run.run_id, session_id=session_id)
        return await self._handler.admit_turn(run.invocation(), run.run_id)


class LosesTheTurn(Mutant):
    """Does not save the turn."""

    guarantee = "G3"
    killed_by = kills(test_session_is_saved_before_the_turn_is_admitted="the turn was not saved")

    async def call(self, run: StoredRun) -> AdmittedTurn:
        return replace(await super().call(run), turn_id="")


class StaysQueued(Mutant):
    """Does not show that a run has begun."""

    guarantee = "G3"
    killed_by = kills(test_session_is_saved_before_the_turn_is_admitted="a run in flight is queued")

    async def call(self, run: StoredRun) -> AdmittedTurn:
        await self.store.update_run(run.run_id, status="queued")
        return await super().call(run)


class CompletesEarly(Mutant):
    """Shows a run as completed while the handler still works."""

    guarantee = "G3"
    killed_by = kills(test_ledger_is_right_while_the_handler_works="a run in flight was shown as")

    async def call(self, run: StoredRun) -> AdmittedTurn:
        await self.store.update_run(run.run_id, status="completed")
        return await super().call(run)


class RetriesPermanentFailures(Mutant):
    """Takes RunPermanentError for any other failure."""

    guarantee = "G3"
    killed_by = kills(
        test_permanent_failure_of_start_session_is_final="a permanent failure was retried",
        test_permanent_failure_of_admit_turn_is_final="a permanent failure was retried",
    )

    async def call(self, run: StoredRun) -> AdmittedTurn:
        try:
            return await super().call(run)
        except RunPermanentError as error:
            raise ValueError(str(error)) from error


class NeverRetries(Mutant):
    """Fails the run at its first failure."""

    guarantee = "G3"
    max_attempts = 1
    killed_by = kills(
        test_failing_start_session_is_retried="two failures that pass have left the run failed",
        test_failing_admit_turn_is_retried_with_the_saved_session="have left the run failed",
        test_retries_are_used_up="a failure that might pass was not retried",
    )


class RetriesForEver(Mutant):
    """Knows no last retry."""

    guarantee = "G3"
    max_attempts = 10**9
    killed_by = kills(test_retries_are_used_up="expected 1 runs at their end")


class CompletesAfterTheLastRetry(Mutant):
    """Calls a run completed once its retries are used up."""

    guarantee = "G3"
    killed_by = kills(test_retries_are_used_up="a run that never succeeded is completed")

    async def fail(self, run: StoredRun, error: Exception) -> bool:
        await self.store.update_run(run.run_id, status="completed", error=str(error))
        return True


class HidesTheError(Mutant):
    """Marks the run failed without saying why."""

    guarantee = "G3"
    killed_by = kills(
        test_permanent_failure_of_start_session_is_final="the error is None",
        test_permanent_failure_of_admit_turn_is_final="the error is None",
        test_retries_are_used_up="the error is None",
    )

    async def fail(self, run: StoredRun, error: Exception) -> bool:
        await self.store.update_run(run.run_id, status="failed")
        return True


class StartsTheSessionAgain(Mutant):
    """Does not use the saved Session on a retry."""

    guarantee = "G3"
    killed_by = kills(
        test_failing_admit_turn_is_retried_with_the_saved_session="a saved Session was started again",
        test_run_waiting_for_a_retry_goes_on_after_a_restart="was started again after the restart",
    )

    async def call(self, run: StoredRun) -> AdmittedTurn:
        return await super().call(replace(run, session_id=None))


class RetriesUnderANewId(Mutant):
    """Makes a new run of each retry."""

    guarantee = "G3"
    killed_by = kills(test_failing_start_session_is_retried="expected 1 runs")

    async def attempt(self, run: StoredRun) -> bool:
        ended = await super().attempt(run)
        if not ended:
            await self.insert(replace(run, run_id=run.run_id + "+", attempts=run.attempts + 1))
            await self.store.update_run(run.run_id, status="failed")
        return True


class ChangesTheInvocation(Mutant):
    """Tells the handler in the payload which attempt it is."""

    guarantee = "G3"
    killed_by = kills(test_invocation_is_the_same_on_every_call="the invocation differs between calls")

    async def call(self, run: StoredRun) -> AdmittedTurn:
        if run.attempts:
            run = replace(run, payload_text=run.payload_text[:-1] + f', "attempt": {run.attempts}}}')
        return await super().call(run)


class OneRunAtATime(Mutant):
    """Lets a run wait until the one before has ended."""

    guarantee = "G1"
    killed_by = kills(test_due_time_fires_while_earlier_runs_go_on="start_session was called 1 times")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.turn = asyncio.Lock()

    async def call(self, run: StoredRun) -> AdmittedTurn:
        async with self.turn:
            return await super().call(run)


class StopsAtAFailure(Mutant):
    """Dispatches nothing more once a run has failed."""

    guarantee = "G3"
    killed_by = kills(test_failure_of_one_run_touches_no_other="expected 1 runs at their end")

    async def fail(self, run: StoredRun, error: Exception) -> bool:
        self._stopping.set()
        return await super().fail(run, error)


class SharesTheInvocation(Mutant):
    """Hands the same payload object to both calls, which the first one may change."""

    guarantee = "G8"
    killed_by = kills(
        test_later_changes_by_caller_or_handler_do_not_reach_the_record="has reached a later call",
    )

    async def call(self, run: StoredRun) -> AdmittedTurn:
        assert self._handler is not None
        shared: RunInvocation = run.invocation()
        session_id = await self._handler.start_session(shared)
        await self.store.update_run(run.run_id, session_id=session_id)
        return await self._handler.admit_turn(shared, session_id)


class LivePayload(Mutant):
    """Reads the payload from the Schedule when it calls."""

    guarantee = "G8"
    killed_by = kills(test_edit_rewrites_no_run_that_exists="an edit has changed what the handler gets")

    async def call(self, run: StoredRun) -> AdmittedTurn:
        rule = await self.store.schedule(run.deployment_id)
        text = rule.payload_text if rule else run.payload_text
        return await super().call(replace(run, payload_text=text))
