"""Due times, and one run record for each of them."""

import asyncio
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from astrabox.seams.scheduler import RunPermanentError, ScheduledRun
from astrabox.testing.conformance.base import ConformanceBase, of_trigger, schedule
from astrabox.testing.conformance.handler import RecordingHandler

ODD_IDS = (
    *("0123456789abcdef0123456789abcdef", "nightly", "Nightly", "NIGHTLY", "nightly ", " nightly"),
    *("a.b", "a-b", "a_b", "a/b", "a", "a-", "-a", "a..b", "../a", "a:b", "%2e", "{}", "*", "null", "0"),
    *("zażółć gęślą jaźń", "定时任务", "🚀", "e\u0301", "é", "line\nbreak", "x" * 40, "x" * 41, "x" * 300),
    *("X" * 300, "nightly-20260101t0000z", "nightly-0123456789abcdef"),
)


def check_due(run: ScheduledRun, due: datetime) -> None:
    """Fail unless the run is that of the due time, given as an aware UTC datetime."""
    assert run.scheduled_for is not None, "a scheduled run has no due time"
    assert run.scheduled_for.utcoffset() == timedelta(0), f"not an aware UTC datetime: {run.scheduled_for!r}"
    assert run.scheduled_for == due, f"the run is for {run.scheduled_for}, not for {due}"


class DueTimes(ConformanceBase):
    """Every due time fires, in its zone; what is missed is skipped."""

    async def test_due_time_starts_a_run(self, store: Any) -> None:
        """A due time gives a run of trigger "schedule", with the due time in UTC."""
        handler, (window,) = RecordingHandler(), self.windows(store, 1)
        async with self.running(store, handler) as provider:
            await provider.apply(schedule("a"))
            await self.fire(provider, "a", window)
            (run,) = await self.settled(provider, "a", 1)
        assert (run.deployment_id, run.trigger, run.status) == ("a", "schedule", "completed")
        assert run.replayed_from_run_id is None
        check_due(run, window.due)
        call = handler.calls[0].invocation
        assert (call.run_id, call.deployment_id, call.trigger) == (run.run_id, "a", "schedule")
        assert call.scheduled_for is not None
        assert call.scheduled_for.utcoffset() == timedelta(0), "the invocation's due time is not aware UTC"
        assert call.scheduled_for == window.due

    async def test_due_times_are_not_merged(self, store: Any) -> None:
        """Three due times that are met together give three runs."""
        windows = self.windows(store, 3)
        async with self.running(store, RecordingHandler()) as provider:
            await provider.apply(schedule("a"))
            await self.fire_due_times(provider, "a", windows[0].start, windows[-1].end)
            runs = await self.settled(provider, "a", 3)
        assert {run.scheduled_for for run in runs} == {w.due for w in windows}, "due times and runs differ"

    async def test_due_times_follow_the_zone(self, store: Any) -> None:
        """The expression is read on the wall clock of the Schedule's zone."""
        (window,) = self.windows(store, 1)
        local = window.due.astimezone(ZoneInfo("Asia/Kolkata"))
        async with self.running(store, RecordingHandler()) as provider:
            for name, clock in (("local", local), ("utc", window.due)):
                cron = f"{clock.minute} {clock.hour} * * *"
                await provider.apply(schedule(name, cron=cron, timezone="Asia/Kolkata"))
            for name in ("local", "utc"):
                await self.fire(provider, name, window)
                await self.marker(provider, name)
            fired = [of_trigger(await provider.list_runs(n), "schedule") for n in ("local", "utc")]
        assert [len(runs) for runs in fired] == [1, 0], "the zone was not followed"
        check_due(fired[0][0], window.due)

    async def test_due_time_fires_while_earlier_runs_go_on(self, store: Any) -> None:
        """A run that has not ended keeps no later due time from its own run, nor from its start."""
        handler, windows = RecordingHandler(), self.windows(store, 3)
        handler.hold("start_session")
        async with self.running(store, handler) as provider:
            await provider.apply(schedule("a"))
            for window in windows:
                await self.fire(provider, "a", window)
            held = await provider.list_runs("a")
            assert len(held) == len(windows), f"{len(windows)} due times gave {len(held)} runs"
            await handler.seen("start_session", len(windows), self.settle_timeout)
            handler.release()
            runs = await self.settled(provider, "a", 3)
        assert len({run.run_id for run in runs}) == len(windows)

    async def test_due_times_are_skipped_while_no_process_runs(self, store: Any) -> None:
        """What falls due between a stop and the next start is not made up for."""
        rule, windows = schedule("a"), self.windows(store, 2)
        async with self.running(store, RecordingHandler(), [rule]) as stopped:
            pass
        await self.fire(stopped, "a", windows[0])
        async with self.running(store, RecordingHandler(), [rule]) as provider:
            await self.fire(provider, "a", windows[1])
            runs = await self.settled(provider, "a", 1)
        check_due(runs[0], windows[1].due)

    async def test_due_times_are_skipped_while_disabled(self, store: Any) -> None:
        """What falls due while disabled is not made up for after enabling."""
        windows = self.windows(store, 3)
        async with self.running(store, RecordingHandler()) as provider:
            await provider.apply(schedule("a"))
            await self.fire(provider, "a", windows[0])
            await provider.apply(schedule("a", enabled=False))
            await self.fire(provider, "a", windows[1])
            await provider.apply(schedule("a"))
            await self.fire(provider, "a", windows[2])
            await self.marker(provider, "a")
            fired = of_trigger(await provider.list_runs("a"), "schedule")
        expected = [windows[2].due, windows[0].due]
        assert [run.scheduled_for for run in fired] == expected, "fired other due times than while enabled"

    async def test_blanks_between_fields_do_not_matter(self, store: Any) -> None:
        """AstraBox does not promise to collapse white space."""
        (window,) = self.windows(store, 1)
        async with self.running(store, RecordingHandler()) as provider:
            await provider.apply(schedule("a", cron="*  *   * \t* *"))
            await self.fire(provider, "a", window)
            await self.settled(provider, "a", 1)

    async def test_any_string_is_a_deployment_id(self, store: Any) -> None:
        """Ids are opaque, and two of them never share a Schedule or a run."""
        (window,) = self.windows(store, 1)
        async with self.running(store, RecordingHandler(), [schedule(name) for name in ODD_IDS]) as provider:
            for name in ODD_IDS:
                await self.fire(provider, name, window)
            runs = {name: (await self.settled(provider, name, 1))[0] for name in ODD_IDS}
        for name, run in runs.items():
            assert run.deployment_id == name, f"{name!r} has a run of {run.deployment_id!r}"
            assert run.payload["prompt"] == f"of {name}", f"{name!r} has another one's payload"
        assert len({run.run_id for run in runs.values()}) == len(ODD_IDS), "two Deployments share a run id"


class OnceOnly(ConformanceBase):
    """One Deployment and one due time give one run."""

    async def test_due_time_fired_twice_is_one_run(self, store: Any) -> None:
        """Also when the first run has ended, well or badly."""
        handler, windows = RecordingHandler(), self.windows(store, 2)
        handler.fail("start_session", lambda: RunPermanentError("the agent is gone"))
        async with self.running(store, handler) as provider:
            await provider.apply(schedule("a"))
            for count, window in enumerate(windows, 1):
                await self.fire(provider, "a", window)
                await self.settled(provider, "a", count)
                await self.fire(provider, "a", window)
                await self.settled(provider, "a", count)
            await self.marker(provider, "a")
            fired = of_trigger(await provider.list_runs("a"), "schedule")
        assert len(fired) == len(windows), f"{len(windows)} due times gave {len(fired)} runs"
        calls = [handler.count("start_session", run.run_id) for run in fired]
        assert calls == [1, 1], "a due time was run twice"

    async def test_due_time_fired_at_once_by_many_is_one_run(self, store: Any) -> None:
        """Eight tasks meet the same due time."""
        (window,) = self.windows(store, 1)
        async with self.running(store, RecordingHandler()) as provider:
            await provider.apply(schedule("a"))
            await asyncio.gather(*(self.fire(provider, "a", window) for _ in range(8)))
            await self.settled(provider, "a", 1)

    async def test_due_time_fired_by_two_replicas_is_one_run(self, store: Any) -> None:
        """Two providers on one store meet the same due time."""
        rule, (window,) = schedule("a"), self.windows(store, 1)
        async with (
            self.running(store, RecordingHandler(), [rule]) as one,
            self.running(store, RecordingHandler(), [rule]) as two,
        ):
            await asyncio.gather(*(self.fire(replica, "a", window) for replica in (one, two) * 2))
            (run,) = await self.settled(one, "a", 1)
            assert [r.run_id for r in await two.list_runs("a")] == [run.run_id], "the replicas disagree"

    async def test_due_time_fired_again_after_a_restart_is_one_run(self, store: Any) -> None:
        """That a due time has been run is kept in the store."""
        rule, (window,) = schedule("a"), self.windows(store, 1)
        async with self.running(store, RecordingHandler(), [rule]) as provider:
            await self.fire(provider, "a", window)
            before = await self.settled(provider, "a", 1)
        async with self.running(store, RecordingHandler(), [rule]) as provider:
            await self.fire(provider, "a", window)
            await self.marker(provider, "a")
            after = of_trigger(await provider.list_runs("a"), "schedule")
        assert after == before, "a restart has changed the ledger"

    async def test_due_time_stays_run_when_the_schedule_is_made_anew(self, store: Any) -> None:
        """Deleting and applying a Schedule frees none of its due times."""
        (window,) = self.windows(store, 1)
        async with self.running(store, RecordingHandler()) as provider:
            await provider.apply(schedule("a"))
            await self.fire(provider, "a", window)
            await self.settled(provider, "a", 1)
            await provider.delete("a")
            await provider.apply(schedule("a", payload={"prompt": "anew"}))
            await self.fire(provider, "a", window)
            await self.marker(provider, "a")
            fired = of_trigger(await provider.list_runs("a"), "schedule")
        assert len(fired) == 1, f"one due time gave {len(fired)} runs"


class Disabling(ConformanceBase):
    """A disabled or deleted Schedule fires nothing; what has started goes on."""

    async def test_disabled_schedule_fires_nothing(self, store: Any) -> None:
        """Whether it was disabled from the start or later."""
        windows = self.windows(store, 2)
        async with self.running(store, RecordingHandler()) as provider:
            await provider.apply(schedule("off", enabled=False))
            await provider.apply(schedule("a"))
            await self.fire(provider, "a", windows[0])
            await provider.apply(schedule("a", enabled=False))
            for name in ("a", "off"):
                await self.fire(provider, name, windows[1])
                await self.marker(provider, name)
            fired = [of_trigger(await provider.list_runs(name), "schedule") for name in ("a", "off")]
        assert [len(runs) for runs in fired] == [1, 0], "a disabled Schedule has fired"

    async def test_run_in_flight_outlives_disable_and_delete(self, store: Any) -> None:
        """Runs that have started go on, retries included."""
        for name in ("disable", "delete"):
            (window,), handler = self.windows(store, 1), RecordingHandler()
            handler.hold("start_session")
            handler.fail("start_session", lambda: TimeoutError("no sandbox yet"))
            async with self.running(store, handler, [schedule(name)]) as provider:
                await self.fire(provider, name, window)
                await handler.seen("start_session", 1, self.settle_timeout)
                if name == "delete":
                    await provider.delete(name)
                else:
                    await provider.apply(schedule(name, enabled=False))
                handler.release()
                (run,) = await self.settled(provider, name, 1)
                assert run.status == "completed", f"a run in flight at {name} is {run.status}"

    async def test_delete_keeps_history_and_fires_nothing(self, store: Any) -> None:
        """History outlives the Schedule; a Schedule made anew under the id adds to it."""
        windows = self.windows(store, 3)
        async with self.running(store, RecordingHandler()) as provider:
            await provider.apply(schedule("a"))
            await self.fire(provider, "a", windows[0])
            before = await self.settled(provider, "a", 1)
            await provider.delete("a")
            assert await provider.list_runs("a") == before, "delete has changed the history"
            await self.fire(provider, "a", windows[1])
            await self.marker(provider, "a")
            fired = of_trigger(await provider.list_runs("a"), "schedule")
            assert fired == before, "a deleted Schedule has fired"
            await provider.apply(schedule("a"))
            await self.fire(provider, "a", windows[2])
            fired = of_trigger(await self.settled(provider, "a", 3), "schedule")
        assert [run.scheduled_for for run in fired] == [windows[2].due, windows[0].due]

    async def test_delete_of_an_unknown_schedule_is_no_error(self, store: Any) -> None:
        """AstraBox may repeat a delete."""
        async with self.running(store, RecordingHandler()) as provider:
            await provider.apply(schedule("a"))
            for name in ("never seen", "a", "a"):
                try:
                    await provider.delete(name)
                except Exception as error:
                    raise AssertionError(f"delete of an unknown Schedule: {error!r}") from error
