"""Life cycle of a replica, and recovery of what it leaves behind."""

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Any
from unittest import SkipTest

from astrabox.seams.scheduler import RunInvocation, ScheduledRun
from astrabox.testing.conformance.base import TERMINAL, ConformanceBase, of_trigger, schedule
from astrabox.testing.conformance.dispatch import busy
from astrabox.testing.conformance.handler import Method, RecordingHandler, session_of


class LifeCycle(ConformanceBase):
    """``configure``, ``start``, ``reconcile``, ``apply`` and ``delete``, ``stop``."""

    async def test_configure_is_synchronous(self, store: Any) -> None:
        """AstraBox calls it inside its running event loop."""
        try:
            provider = self.make_provider(store)
        except RuntimeError as error:
            raise AssertionError(f"configure does not work inside a running event loop: {error}") from error
        assert not inspect.iscoroutinefunction(provider.configure), "configure is a coroutine function"

    async def test_properties_are_declared(self, store: Any) -> None:
        """They are of use to an operator, and do not change."""
        provider = self.make_provider(store)
        declared = provider.properties
        assert declared.recovery_scope in ("cluster", "executor"), f"no such scope: {declared.recovery_scope}"
        most = declared.max_active_schedules
        assert most is None or (type(most) is int and most > 0), f"no such limit: {most!r}"
        assert 0 <= declared.pause_visibility_seconds < 3600, "pause_visibility_seconds is out of range"  # noqa: PLR2004
        assert isinstance(provider.name, str)
        assert provider.name not in ("", "none"), "AstraBox keeps the name `none` for itself"
        await provider.start(RecordingHandler())
        assert provider.properties == declared, "the properties have changed"
        await self.stop(provider)

    async def test_stop_twice_is_harmless(self, store: Any) -> None:
        """A second stop does nothing, also if it comes while the first one is under way."""
        async with self.running(store, RecordingHandler(), [schedule("a")]) as provider:
            await asyncio.gather(self.stop(provider), self.stop(provider))
        async with self.running(store, RecordingHandler(), [schedule("a")]) as provider:
            await self.fire(provider, "a", self.windows(store, 1)[0])
            await self.settled(provider, "a", 1)

    async def test_reconcile_makes_the_stored_schedules_equal(self, store: Any) -> None:
        """It adds what is missing, changes what differs and removes what AstraBox no longer has."""
        rules = [schedule("kept"), schedule("edited"), schedule("off"), schedule("removed")]
        now = [
            schedule("kept"),
            schedule("edited", payload={"prompt": "new"}),
            schedule("off", enabled=False),
            schedule("added"),
        ]
        names = ("kept", "edited", "off", "removed", "added")
        async with self.running(store, RecordingHandler()) as provider:
            for rule in rules:
                await provider.apply(rule)
        await asyncio.sleep(self.reconcile_grace)
        async with self.running(store, RecordingHandler(), now) as provider:
            (window,) = self.windows(store, 1)
            for name in names:
                await self.fire(provider, name, window)
                await self.marker(provider, name)
            runs = {name: of_trigger(await provider.list_runs(name), "schedule") for name in names}
        assert {name: len(r) for name, r in runs.items()} == {
            "kept": 1,
            "edited": 1,
            "off": 0,
            "removed": 0,
            "added": 1,
        }, "after reconcile, other Schedules fire than AstraBox has"
        assert runs["edited"][0].payload["prompt"] == "new", "reconcile has not taken the new payload"

    async def test_reconcile_of_what_is_there_changes_nothing(self, store: Any) -> None:
        """Runs stay, due times that were run stay run, and the rule goes on."""
        rule, windows = schedule("a"), self.windows(store, 2)
        async with self.running(store, RecordingHandler(), [rule]) as provider:
            await self.fire(provider, "a", windows[0])
            before = await self.settled(provider, "a", 1)
            await provider.reconcile([rule])
            await self.fire(provider, "a", windows[0])
            await provider.reconcile([rule])
            assert await self.settled(provider, "a", 1) == before, "reconcile has changed the history"
            await self.fire(provider, "a", windows[1])
            await self.settled(provider, "a", 2)

    async def test_two_replicas_reconcile_at_once(self, store: Any) -> None:
        """Replicas start together; neither fails, and both see the same runs."""
        rules = [schedule(name) for name in ("a", "b", "c")]
        async with (
            self.running(store, RecordingHandler()) as one,
            self.running(store, RecordingHandler()) as two,
        ):
            await self._at_once(one.reconcile(rules), two.reconcile(rules))
            await self._at_once(one.apply(rules[0]), two.apply(rules[0]), two.delete("b"), one.delete("b"))
            (window,) = self.windows(store, 1)
            for name in ("a", "b", "c"):
                await self.fire(two, name, window)
                await self.marker(two, name)
            counts = [len(of_trigger(await one.list_runs(name), "schedule")) for name in ("a", "b", "c")]
        assert counts == [1, 0, 1], f"runs of a kept, a deleted and a kept Schedule: {counts}"

    async def _at_once(self, *calls: Awaitable[None]) -> None:
        results = await asyncio.gather(*calls, return_exceptions=True)
        failed = [repr(result) for result in results if result is not None]
        assert not failed, f"replicas at once: {', '.join(failed)}"


class Recovery(ConformanceBase):
    """What a replica leaves unfinished goes on elsewhere, under its run id."""

    async def _left_unfinished(self, store: Any, handler: RecordingHandler, method: Method) -> ScheduledRun:
        """Stop a replica while it is busy with ``method``; return the run as it was then."""
        async with self.running(store, handler, [schedule("a")]) as provider:
            await self.fire(provider, "a", self.windows(store, 1)[0])
            await handler.seen(method, 1, self.settle_timeout)
            (run,) = await provider.list_runs("a")
            await self.stop(provider)
        return run

    async def _goes_on(self, store: Any, run: ScheduledRun) -> RecordingHandler:
        """Start another replica, without reconcile, and see the run through."""
        handler = RecordingHandler()
        provider = self.make_provider(store)
        await provider.start(handler)
        try:
            (done,) = await self.settled(provider, "a", 1)
        finally:
            await self.stop(provider)
        assert done.run_id == run.run_id, "the run went on under another id"
        assert done.status == "completed", f"the run ended {done.status}: {done.error}"
        assert done.session_id == session_of(run.run_id), "the run went on in another Session"
        return handler

    async def test_run_in_its_first_call_goes_on_after_a_restart(self, store: Any) -> None:
        """``stop`` returns though ``start_session`` hangs; the next start repeats it."""
        handler = RecordingHandler()
        handler.hold("start_session")
        run = await self._left_unfinished(store, handler, "start_session")
        calls = len(handler.calls)
        later = await self._goes_on(store, run)
        assert len(handler.calls) == calls, "a stopped replica has called its handler"
        assert {c.identity for c in later.calls} == {handler.calls[0].identity}, "the invocation has changed"

    async def test_run_in_its_second_call_goes_on_with_its_session(self, store: Any) -> None:
        """The saved Session is used after the restart, not started again."""
        handler = RecordingHandler()
        handler.hold("admit_turn")
        run = await self._left_unfinished(store, handler, "admit_turn")
        assert run.session_id == session_of(run.run_id), "the Session was not saved before admit_turn"
        later = await self._goes_on(store, run)
        assert later.count("start_session") == 0, "a saved Session was started again after the restart"
        assert later.calls[0].session_id == run.session_id, "the turn went to another Session"

    async def test_run_waiting_for_a_retry_goes_on_after_a_restart(self, store: Any) -> None:
        """A stop during backoff ends neither the run nor its Session."""
        handler = RecordingHandler()
        handler.fail("admit_turn", busy)
        run = await self._left_unfinished(store, handler, "admit_turn")
        if handler.count("admit_turn") == 1:
            later = await self._goes_on(store, run)
            assert later.count("start_session") == 0, "a saved Session was started again after the restart"

    async def test_manual_run_goes_on_after_a_restart(self, store: Any) -> None:
        """Recovery is for runs of every trigger."""
        handler = RecordingHandler()
        handler.hold("start_session")
        async with self.running(store, handler) as provider:
            run = await provider.enqueue("a", {"prompt": "now"}, trigger="manual")
            await self.stop(provider)
        later = await self._goes_on(store, run)
        assert later.calls[-1].invocation.payload == {"prompt": "now"}

    async def test_call_in_flight_at_stop_is_not_lost(self, store: Any) -> None:
        """What ends during the drain is saved; or it is repeated after the restart."""
        handler = RecordingHandler()
        handler.hold("admit_turn")
        async with self.running(store, handler, [schedule("a")]) as provider:
            await self.fire(provider, "a", self.windows(store, 1)[0])
            await handler.seen("admit_turn", 1, self.settle_timeout)
            (run,) = await provider.list_runs("a")
            stopping = asyncio.create_task(self.stop(provider))
            await asyncio.sleep(0)
            handler.release()
            await stopping
            calls = len(handler.calls)
        await self._goes_on(store, run)
        assert len(handler.calls) == calls, "a stopped replica has called its handler"

    async def test_no_run_begins_once_stop_has_returned(self, store: Any) -> None:
        """A stopped replica calls its handler no more, whatever becomes of its runs."""
        handler = RecordingHandler()
        handler.fail_always("start_session", busy)
        async with self.running(store, handler, [schedule("a")]) as provider:
            await self.fire(provider, "a", self.windows(store, 1)[0])
            await handler.seen("start_session", 1, self.settle_timeout)
            await self.stop(provider)
            calls = len(handler.calls)
        patient = RecordingHandler()
        patient.fail(
            "start_session", busy, busy
        )  # two retries of this replica leave time for one of the other
        async with self.running(store, patient) as other:
            await self.settled(other, "a", 1)
            await self.marker(other, "b")
        assert len(handler.calls) == calls, "a stopped replica has called its handler"

    async def test_live_replica_takes_over_from_a_stopped_one(self, store: Any) -> None:
        """With ``recovery_scope="cluster"`` no restart is needed."""
        first, second = RecordingHandler(), RecordingHandler()
        for handler in (first, second):
            handler.hold("admit_turn")
        async with self.running(store, first) as one, self.running(store, second) as two:
            if one.properties.recovery_scope != "cluster":
                raise SkipTest("the engine leaves a run to the process that had it")
            run = await one.enqueue("a", {}, trigger="manual")
            await self._begun(first, second)
            stopped, live, other = (one, two, second) if first.calls else (two, one, first)
            await self.stop(stopped)
            other.release()
            (done,) = await self.settled(live, "a", 1)
        assert (done.run_id, done.status) == (run.run_id, "completed"), f"the run is {done.status}"
        assert other.count("start_session") == 0, "a saved Session was started again by the other replica"

    async def _begun(self, *handlers: RecordingHandler) -> None:
        waits = [asyncio.create_task(h.seen("admit_turn", 1, self.settle_timeout)) for h in handlers]
        done, pending = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()

    async def test_ledger_is_right_while_the_handler_works(self, store: Any) -> None:
        """A run that has not ended is not shown as ended."""
        handler, seen = RecordingHandler(), list[str]()
        async with self.running(store, handler) as provider:

            async def look(invocation: RunInvocation) -> None:
                seen.extend(run.status for run in await provider.list_runs(invocation.deployment_id))

            for method in ("start_session", "admit_turn"):
                handler.on(method, look)
            await provider.enqueue("a", {}, trigger="manual")
            await self.settled(provider, "a", 1)
        assert not TERMINAL.intersection(seen), f"a run in flight was shown as {seen}"
