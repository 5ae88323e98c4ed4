"""What a binding supplies, and what every part of the suite uses."""

import asyncio
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from unittest import SkipTest

from astrabox.seams.scheduler import RunHandler, Schedule, ScheduledRun, SchedulerProvider

TERMINAL: Final = frozenset({"completed", "failed", "cancelled"})
EVERY_MINUTE: Final = "* * * * *"
MINUTE: Final = timedelta(minutes=1)
HALF_MINUTE: Final = timedelta(seconds=30)


@dataclass(frozen=True, slots=True)
class Window:
    """A due time of ``* * * * *`` and an open interval that holds no other one."""

    due: datetime

    @property
    def start(self) -> datetime:
        """Half a minute before the due time."""
        return self.due - HALF_MINUTE

    @property
    def end(self) -> datetime:
        """Half a minute after the due time."""
        return self.due + HALF_MINUTE


class ConformanceBase:
    """Knobs and hooks of a binding. The two hooks that raise NotImplementedError must be supplied.

    Every test asks for a fixture ``store``, which the binding's module defines: whatever stands for
    one fresh, empty store. If the engine fires by itself while a test runs, it does no harm, except
    that `fire_due_times` must still return only once the due times have been dealt with.
    """

    settle_timeout: float = 10.0
    """Seconds within which a run has to reach a state that the test waits for."""
    poll_interval: float = 0.01
    """Seconds between two looks at the ledger."""
    stop_timeout: float = 30.0
    """Seconds within which `stop` has to return, even if a handler call hangs."""
    reconcile_grace: float = 0.0
    """Seconds for which a reconcile spares a Schedule that was applied just before it."""
    created_at_resolution: float = 0.0
    """Seconds by which two runs must lie apart for the engine to know which is the newer one."""
    fault_period: float = 0.05
    """Seconds for which the store stays away after a handler call has ended, see `store_fault`."""
    engine_words: Sequence[str] = (
        *("kubernetes", "k8s", "kubectl", "etcd", "apiserver", "api server", "resourceversion", "configmap"),
        *("custom ?resource", "crds?", "lease", "namespace", "finalizer", "http", "aiohttp", "status code"),
        *("40[0-9]", "42[0-9]", "50[0-9]", "dbos", "postgres(ql)?", "sqlite", "sqlalchemy", "mongo(db)?"),
        *("croniter", "zoneinfo", "traceback", "errno"),
    )
    """Patterns of whole words that no error text may contain, in any case."""

    def make_provider(self, store: Any) -> SchedulerProvider:
        """Return a configured provider on ``store``; a second call gives another replica on it.

        Retries should follow each other within milliseconds and be used up within `settle_timeout`.
        """
        raise NotImplementedError

    async def fire_due_times(
        self, provider: SchedulerProvider, deployment_id: str, start: datetime, end: datetime
    ) -> None:
        """Let the engine meet every due time d with start < d < end, by its own means.

        Returns once every run that comes of it is in the ledger. The engine decides whether one does:
        the suite also calls this while the Schedule is disabled or gone, again for due times that it
        has fired before, from several tasks at once, and with a provider that has been stopped (then
        no process was running at these due times). Due times come in ascending order without a gap,
        the first one within two minutes of `now`.
        """
        raise NotImplementedError

    def now(self, store: Any) -> datetime:  # noqa: ARG002 - for bindings that keep their clock there
        """Return the engine's time, aware; overridden by a binding that sets its engine's clock."""
        return datetime.now(UTC)

    def store_fault(self, store: Any) -> AbstractAsyncContextManager[object]:  # noqa: ARG002 - for bindings
        """Return a context in which no access to the store works; tests that need it are skipped without."""
        raise SkipTest("the binding cannot break its store")

    # What follows is for the suite's own tests.

    @asynccontextmanager
    async def running(
        self, store: Any, handler: RunHandler, schedules: Sequence[Schedule] = ()
    ) -> AsyncIterator[SchedulerProvider]:
        """Run a replica as AstraBox does: start, reconcile, and in the end stop."""
        provider = self.make_provider(store)
        await provider.start(handler)
        try:
            await provider.reconcile(schedules)
            yield provider
        finally:
            await self.stop(provider)

    async def stop(self, provider: SchedulerProvider) -> None:
        """Stop a provider; AssertionError if that takes too long."""
        try:
            async with asyncio.timeout(self.stop_timeout):
                await provider.stop()
        except TimeoutError:
            raise AssertionError(f"stop() has not returned within {self.stop_timeout} s") from None
        except Exception as error:
            raise AssertionError(f"stop() has failed: {error}") from error

    def windows(self, store: Any, count: int) -> list[Window]:
        """Return consecutive windows, the first around the next full minute that is not too close."""
        now = self.now(store).astimezone(UTC)
        first = now.replace(second=0, microsecond=0) + MINUTE
        if first - now < MINUTE / 4:
            first += MINUTE
        return [Window(first + step * MINUTE) for step in range(count)]

    async def fire(self, provider: SchedulerProvider, deployment_id: str, window: Window) -> None:
        """Fire the one due time in ``window``."""
        await self.fire_due_times(provider, deployment_id, window.start, window.end)

    async def settled(
        self, provider: SchedulerProvider, deployment_id: str, count: int
    ) -> list[ScheduledRun]:
        """Wait until there are ``count`` runs, all at their end; return them, newest first."""
        runs: list[ScheduledRun] = []
        try:
            async with asyncio.timeout(self.settle_timeout):
                while True:
                    runs = await provider.list_runs(deployment_id, limit=200)
                    if len(runs) >= count and all(run.status in TERMINAL for run in runs):
                        break
                    await asyncio.sleep(self.poll_interval)
        except TimeoutError:
            states = [(run.trigger, run.status) for run in runs]
            raise AssertionError(f"expected {count} runs at their end, found {states}") from None
        assert len(runs) == count, f"expected {count} runs, found {[(r.run_id, r.trigger) for r in runs]}"
        return runs

    async def marker(self, provider: SchedulerProvider, deployment_id: str) -> None:
        """See a manual run through; what an earlier fire has started is in the ledger by then, too."""
        run = await provider.enqueue(deployment_id, {"marker": True}, trigger="manual")
        try:
            async with asyncio.timeout(self.settle_timeout):
                while True:
                    runs = await provider.list_runs(deployment_id, limit=200)
                    if any(other.run_id == run.run_id and other.status in TERMINAL for other in runs):
                        return
                    await asyncio.sleep(self.poll_interval)
        except TimeoutError:
            raise AssertionError("a manual run has not come to its end") from None

    def check_words(self, text: str | None) -> None:
        """Fail if an error's text speaks of the engine."""
        assert text, "an error must have a text"
        for word in self.engine_words:
            found = re.search(rf"\b(?:{word})\b", text, re.IGNORECASE)
            assert not found, f"the word {word!r} of an engine is in the error {text!r}"


def schedule(
    deployment_id: str,
    *,
    payload: Mapping[str, Any] | None = None,
    cron: str = EVERY_MINUTE,
    timezone: str = "UTC",
    enabled: bool = True,
) -> Schedule:
    """Return a Schedule that is due at every minute unless told otherwise."""
    content = {"prompt": f"of {deployment_id}"} if payload is None else payload
    return Schedule(deployment_id, cron, timezone, enabled, content)


def of_trigger(runs: Sequence[ScheduledRun], trigger: str) -> list[ScheduledRun]:
    """Return the runs of one trigger, in the order given."""
    return [run for run in runs if run.trigger == trigger]
