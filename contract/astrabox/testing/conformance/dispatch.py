"""Dispatch of a run: two handler calls, retries, and the end."""

from typing import Any

from astrabox.seams.scheduler import RunInvocation, RunPermanentError, ScheduledRun, SchedulerProvider
from astrabox.testing.conformance.base import ConformanceBase, schedule
from astrabox.testing.conformance.handler import (
    Method,
    RecordingHandler,
    SandboxBusyError,
    session_of,
    turn_of,
)

METHODS: tuple[Method, Method] = ("start_session", "admit_turn")


def busy() -> Exception:
    """Return a failure that is worth a retry."""
    return SandboxBusyError("all sandboxes are busy")


def gone() -> Exception:
    """Return a failure that is not."""
    return RunPermanentError("the agent is gone")


class Dispatch(ConformanceBase):
    """``start_session``, save, ``admit_turn``, save; each repeated as long as that helps."""

    async def _fired(self, provider: SchedulerProvider, store: Any) -> ScheduledRun:
        await provider.apply(schedule("a"))
        await self.fire(provider, "a", self.windows(store, 1)[0])
        (run,) = await self.settled(provider, "a", 1)
        return run

    async def test_session_is_saved_before_the_turn_is_admitted(self, store: Any) -> None:
        """A look at the ledger from within ``admit_turn`` shows the Session."""
        handler, seen = RecordingHandler(), list[ScheduledRun]()
        async with self.running(store, handler) as provider:

            async def look(invocation: RunInvocation) -> None:
                seen.extend(await provider.list_runs(invocation.deployment_id))

            handler.on("admit_turn", look)
            run = await self._fired(provider, store)
        assert [call.method for call in handler.calls] == list(METHODS), "other calls than one of each"
        assert handler.calls[1].session_id == session_of(run.run_id), "the turn went to another Session"
        assert [r.session_id for r in seen] == [session_of(run.run_id)], "the Session was not saved first"
        assert seen[0].status == "running", f"a run in flight is {seen[0].status}"
        assert (run.status, run.session_id) == ("completed", session_of(run.run_id))
        assert run.turn_id == turn_of(run.run_id), "the turn was not saved"
        assert run.error is None

    async def test_invocation_is_the_same_on_every_call(self, store: Any) -> None:
        """Over both methods and all repeats, even if the handler changes what it was given."""
        handler = RecordingHandler()
        for method in METHODS:
            handler.fail(method, busy, busy)
        async with self.running(store, handler) as provider:
            run = await self._fired(provider, store)
        assert len({call.identity for call in handler.calls}) == 1, "the invocation differs between calls"
        assert handler.calls[0].invocation.run_id == run.run_id

    async def test_failing_start_session_is_retried(self, store: Any) -> None:
        """The run completes under the id that it had."""
        handler = RecordingHandler()
        handler.fail("start_session", busy, busy)
        async with self.running(store, handler) as provider:
            run = await self._fired(provider, store)
        assert run.status == "completed", f"two failures that pass have left the run {run.status}"
        assert [c.invocation.run_id for c in handler.of("start_session")] == [run.run_id] * 3
        assert handler.count("admit_turn") == 1

    async def test_failing_admit_turn_is_retried_with_the_saved_session(self, store: Any) -> None:
        """The Session that was saved is not started again."""
        handler = RecordingHandler()
        handler.fail("admit_turn", busy, busy)
        async with self.running(store, handler) as provider:
            run = await self._fired(provider, store)
        assert run.status == "completed", f"two failures that pass have left the run {run.status}"
        assert handler.count("start_session") == 1, "a saved Session was started again"
        assert [c.session_id for c in handler.of("admit_turn")] == [session_of(run.run_id)] * 3

    async def test_permanent_failure_of_start_session_is_final(self, store: Any) -> None:
        """No retry, no turn; the error is in the ledger."""
        handler = RecordingHandler()
        handler.fail("start_session", gone)
        async with self.running(store, handler) as provider:
            run = await self._fired(provider, store)
            await self.marker(provider, "a")
        assert handler.count("start_session", run.run_id) == 1, "a permanent failure was retried"
        assert handler.count("admit_turn", run.run_id) == 0
        assert (run.status, run.session_id, run.turn_id) == ("failed", None, None)
        assert "the agent is gone" in (run.error or ""), f"the error is {run.error!r}"
        self.check_words(run.error)

    async def test_permanent_failure_of_admit_turn_is_final(self, store: Any) -> None:
        """The Session stays in the ledger."""
        handler = RecordingHandler()
        handler.fail("admit_turn", gone)
        async with self.running(store, handler) as provider:
            run = await self._fired(provider, store)
            await self.marker(provider, "a")
        assert handler.count("admit_turn", run.run_id) == 1, "a permanent failure was retried"
        assert (run.status, run.session_id, run.turn_id) == ("failed", session_of(run.run_id), None)
        assert "the agent is gone" in (run.error or ""), f"the error is {run.error!r}"

    async def test_retries_are_used_up(self, store: Any) -> None:
        """A failure that does not pass makes the run failed, after more than one call."""
        for method in METHODS:
            handler = RecordingHandler()
            handler.fail_always(method, busy)
            async with self.running(store, handler, [schedule(method)]) as provider:
                await self.fire(provider, method, self.windows(store, 1)[0])
                (run,) = await self.settled(provider, method, 1)
                calls = handler.count(method)
            assert run.status == "failed", f"a run that never succeeded is {run.status}"
            assert calls > 1, "a failure that might pass was not retried"
            assert handler.count(method) == calls, "a failed run was called again"
            assert "all sandboxes are busy" in (run.error or ""), f"the error is {run.error!r}"
            self.check_words(run.error)

    async def test_failure_of_one_run_touches_no_other(self, store: Any) -> None:
        """After one run has failed, others complete."""
        handler = RecordingHandler()

        async def fail_a(invocation: RunInvocation) -> None:
            if invocation.deployment_id == "a":
                raise busy()

        handler.on("start_session", fail_a)
        async with self.running(store, handler, [schedule("a"), schedule("b")]) as provider:
            (window,) = self.windows(store, 1)
            statuses = []
            for name in ("a", "b"):
                await self.fire(provider, name, window)
                statuses += [run.status for run in await self.settled(provider, name, 1)]
        assert statuses == ["failed", "completed"], f"of two runs, one of which fails: {statuses}"
