"""Errors: the contract's own, in its own words, and with the old state intact."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any
from unittest import SkipTest

from astrabox.seams.scheduler import (
    InvalidSchedule,
    ScheduleCapacityExceeded,
    SchedulerError,
    SchedulerProvider,
    SchedulerUnavailable,
)
from astrabox.testing.conformance.base import ConformanceBase, of_trigger, schedule
from astrabox.testing.conformance.handler import RecordingHandler

BAD_CRONS = (
    *("", " ", "* * * *", "* * * * * *", "61 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"),
    *("*/0 * * * *", "a * * * *", "@daily", "every minute", "-1 * * * *", "1-60 * * * *", "0 0 30 2 *"),
)
BAD_ZONES = ("", "Mars/Olympus_Mons", "America", "../etc/passwd", "UTC+25", "localtime", "x" * 300)
UNSTOPPED_LIMIT = 500


class Errors(ConformanceBase):
    """What goes wrong is said as the contract says it."""

    async def _refused(
        self, expected: type[SchedulerError], call: Callable[[], Awaitable[object]], what: str
    ) -> SchedulerError:
        try:
            await call()
        except expected as error:
            self.check_words(str(error))
            return error
        except Exception as error:
            raise AssertionError(f"{what}: raised {type(error).__name__} ({error})") from error
        raise AssertionError(f"{what}: no error was raised")

    async def _scheduled_prompts(self, provider: SchedulerProvider, deployment_id: str) -> list[str]:
        await self.marker(provider, deployment_id)
        runs = of_trigger(await provider.list_runs(deployment_id), "schedule")
        return [run.payload["prompt"] for run in runs]

    async def test_invalid_cron_is_refused(self, store: Any) -> None:
        """Whether the Schedule is new or not; a disabled one is checked, too."""
        async with self.running(store, RecordingHandler(), [schedule("a")]) as provider:
            for cron in BAD_CRONS:
                for rule in (schedule("a", cron=cron), schedule("new", cron=cron, enabled=False)):
                    await self._refused(InvalidSchedule, partial(provider.apply, rule), f"cron {cron!r}")

    async def test_invalid_zone_is_refused(self, store: Any) -> None:
        """Only IANA zones are zones."""
        async with self.running(store, RecordingHandler(), [schedule("a")]) as provider:
            for zone in BAD_ZONES:
                rule = schedule("a", timezone=zone)
                await self._refused(InvalidSchedule, partial(provider.apply, rule), f"zone {zone!r}")

    async def test_refused_apply_leaves_the_old_state(self, store: Any) -> None:
        """A Schedule that was there fires as before; one that was not is not."""
        (window,) = self.windows(store, 1)
        async with self.running(store, RecordingHandler()) as provider:
            await provider.apply(schedule("a", payload={"prompt": "old"}))
            bad = {"payload": {"prompt": "new"}, "enabled": False}
            for cron, zone in (("bad", "UTC"), ("* * * * *", "Mars/Olympus_Mons")):
                for name in ("a", "new"):
                    rule = schedule(name, cron=cron, timezone=zone, **bad)  # type: ignore[arg-type]
                    await self._refused(InvalidSchedule, partial(provider.apply, rule), "a bad Schedule")
            for name in ("a", "new"):
                await self.fire(provider, name, window)
            fired = [await self._scheduled_prompts(provider, name) for name in ("a", "new")]
        assert fired == [["old"], []], f"a refused apply has changed the state: {fired}"

    async def test_store_fault_is_unavailable(self, store: Any) -> None:
        """Every call says so; the cause is chained for the logs, and nothing has changed."""
        (window,) = self.windows(store, 1)
        fault = self.store_fault(store)
        old, new = schedule("a", payload={"prompt": "old"}), schedule("a", payload={"prompt": "new"})
        async with self.running(store, RecordingHandler(), [old, schedule("b")]) as provider:
            calls: dict[str, Callable[[], Awaitable[object]]] = {
                "apply": lambda: provider.apply(new),
                "delete": lambda: provider.delete("a"),
                "reconcile": lambda: provider.reconcile([new]),
                "enqueue": lambda: provider.enqueue("a", {}, trigger="manual"),
                "list_runs": lambda: provider.list_runs("a"),
            }
            async with fault:
                for name, call in calls.items():
                    error = await self._refused(SchedulerUnavailable, call, f"{name} without a store")
                    chained = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
                    assert chained is not None, f"{name}: the cause is not chained"
            for name in ("a", "b"):
                await self.fire(provider, name, window)
            fired = [await self._scheduled_prompts(provider, name) for name in ("a", "b")]
            manual = of_trigger(await provider.list_runs("a"), "manual")
        assert fired == [["old"], ["of b"]], f"a call that failed has changed the state: {fired}"
        assert len(manual) == 1, "an enqueue that failed has left a run"

    async def test_run_outlives_a_store_fault(self, store: Any) -> None:
        """A handler call that ends while the store is away is saved later, or repeated."""
        handler, fault = RecordingHandler(), self.store_fault(store)
        handler.hold("start_session")
        async with self.running(store, handler) as provider:
            run = await provider.enqueue("a", {}, trigger="manual")
            await handler.seen("start_session", 1, self.settle_timeout)
            async with fault:
                handler.release()
                await asyncio.sleep(self.fault_period)
            (done,) = await self.settled(provider, "a", 1)
        assert (done.run_id, done.status) == (run.run_id, "completed"), f"the run is {done.status}"

    async def test_capacity_is_kept(self, store: Any) -> None:
        """One enabled Schedule more than declared is refused; disabled ones do not count."""
        async with self.running(store, RecordingHandler()) as provider:
            most = provider.properties.max_active_schedules
            if most is None or most > UNSTOPPED_LIMIT:
                raise SkipTest("the engine declares no limit, or one too far away")
            await provider.apply(schedule("off", enabled=False))
            for number in range(most):
                await provider.apply(schedule(f"s{number}"))
            for name in ("extra", "off"):
                await self._refused(
                    ScheduleCapacityExceeded,
                    partial(provider.apply, schedule(name)),
                    "one Schedule too many",
                )
            await provider.apply(schedule("s0", payload={"prompt": "edited"}))
            (window,) = self.windows(store, 1)
            for name in ("extra", "off", "s0"):
                await self.fire(provider, name, window)
            fired = [await self._scheduled_prompts(provider, name) for name in ("extra", "off", "s0")]
            assert fired == [[], [], ["edited"]], f"a refused apply has changed the state: {fired}"
            await provider.apply(schedule("s0", enabled=False))
            await provider.apply(schedule("extra"))
