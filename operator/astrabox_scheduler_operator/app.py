"""Wires the parts of one operator process, starts them in order and ends them in order.

What it sends to the API server is counted in `docs/architecture.md`.
"""

import asyncio
import logging
import signal
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final

from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.confirm import ScheduleConfirm
from astrabox_scheduler_client.errors import ConnectError, NotFound
from astrabox_scheduler_client.identity import new_identity
from astrabox_scheduler_client.lease_keeper import LeaseKeeper
from astrabox_scheduler_client.presence import PresencePoller
from astrabox_scheduler_crds.cron import check_zone_data, tzdata_version
from astrabox_scheduler_crds.presence import PresenceObserver
from astrabox_scheduler_operator.attendance import LeaseAttendance
from astrabox_scheduler_operator.burst import Burst
from astrabox_scheduler_operator.due_queue import DueQueue
from astrabox_scheduler_operator.entry import Entry, Gap
from astrabox_scheduler_operator.firing_loop import FiringLoop
from astrabox_scheduler_operator.health import HEALTH_STOP_SECONDS, HealthServer, stale
from astrabox_scheduler_operator.index import ScheduleIndex
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.missed import MAX_TURN_SECONDS, MissedCount
from astrabox_scheduler_operator.orphans import ORPHAN_SECONDS, Orphans
from astrabox_scheduler_operator.preflight import Preflight, remedy
from astrabox_scheduler_operator.repeat import repeat
from astrabox_scheduler_operator.reporter import Reporter
from astrabox_scheduler_operator.retention import RETENTION_SECONDS, Retention
from astrabox_scheduler_operator.run_creator import RunCreator
from astrabox_scheduler_operator.schedule_status import state_of
from astrabox_scheduler_operator.settings import PREFIX, Settings
from astrabox_scheduler_operator.share import Share
from astrabox_scheduler_operator.skips import Skips
from astrabox_scheduler_operator.status_writer import StatusWriter
from astrabox_scheduler_operator.sweep import Sweep
from astrabox_scheduler_operator.watch import Change, ScheduleWatch

FINISH_SECONDS: Final = 10.0
CANCEL_SECONDS: Final = 1.0
FLUSH_SECONDS: Final = 3.0
WATCH_STOP_SECONDS: Final = 2.0
RELEASE_SECONDS: Final = 9.0
"""Of the Lease: 4 for a call in flight, 2 for the release, 1 for its thread, and some to spare."""
_JOIN_SECONDS: Final = 1.0
"""That the keeper of the Lease waits for its thread after the time it is given."""
STOP_SECONDS: Final = (
    FINISH_SECONDS
    + CANCEL_SECONDS
    + FLUSH_SECONDS
    + WATCH_STOP_SECONDS
    + RELEASE_SECONDS
    + HEALTH_STOP_SECONDS
)
"""From SIGTERM to the end, if every part takes all it may: no grace period of a pod may be shorter."""
SWEEP_STALE_SECONDS: Final = 60.0
LOAD_SILENT_SECONDS: Final = 60.0
"""Longer than kopf repeats a refused list. kopf that found our group not served yet never watches."""
LOAD_SECONDS: Final = 180.0
"""However much the watch brings meanwhile: an operator that does not come to an end with it fires nothing."""
_BLIND: Final = (
    "so nobody counts as there and nothing fires: the log says why, check the API server and the right to "
    "list leases"
)
_LOG = logging.getLogger(__name__)


class Operator:
    """One process's parts, made but not started."""

    def __init__(self, settings: Settings, api: SchedulerApi, identity: str) -> None:
        self._api = api
        self._settings = settings
        clock = api.clock
        window = settings.catch_up_window
        self.metrics = Metrics()
        self.keeper = LeaseKeeper(settings.connect, api.namespace, "operator", identity, clock=clock)
        observer = PresenceObserver()
        self._poller = PresencePoller(api.leases, observer, clock, ("provider", "operator"))
        self.attendance = LeaseAttendance(self.keeper, self._poller, observer, clock)
        self.queue = DueQueue()
        self.index = ScheduleIndex(self.queue, self._changed)
        confirm = ScheduleConfirm(api.schedules, clock)
        self.firing = self._firing_loop(window, confirm)
        idle = self.firing.idle
        self.reporter = Reporter(api.events, idle)
        self.status = StatusWriter(
            store=api.schedules,
            attendance=self.attendance,
            clock=clock,
            metrics=self.metrics,
            idle=idle,
            tell_problem=self.reporter.problem,
        )
        self.share = Share(
            keeper=self.keeper,
            attendance=self.attendance,
            firing=self.firing,
            confirm=confirm,
            index=self.index,
            clock=clock,
            metrics=self.metrics,
        )
        self.sweep = Sweep(api.schedules, self.index, clock, self.metrics)
        self._orphans = Orphans(api.runs, self.attendance, self.metrics, window)
        self._retention = Retention(
            runs=api.runs,
            leases=api.leases,
            schedules=api.schedules,
            attendance=self.attendance,
            metrics=self.metrics,
            idle=idle,
            keep=settings.history_limit,
            window=window,
        )
        self.preflight = Preflight(api.discovery, api.access, api.namespace)
        self._watch = ScheduleWatch(settings.connect, api.namespace, self.receive)
        self._members: frozenset[str] = frozenset()
        self._started: float | None = None
        self.metrics.clock_skew.set_function(clock.skew)

    def _firing_loop(self, window: timedelta, confirm: ScheduleConfirm) -> FiringLoop:
        api, clock = self._api, self._api.clock
        burst = Burst(
            index=self.index,
            confirm=confirm,
            schedules=api.schedules,
            creator=RunCreator(api.runs, self.attendance, window),
            clock=clock,
            metrics=self.metrics,
            concurrency=self._settings.create_concurrency,
        )
        skips = Skips(self.index, self.attendance, self.metrics)
        return FiringLoop(
            index=self.index,
            queue=self.queue,
            attendance=self.attendance,
            burst=burst,
            skips=skips,
            missed=MissedCount(api.runs, skips, clock, self._settings.history_limit),
            clock=clock,
            metrics=self.metrics,
            window=window,
            tell_gap=self._tell_gap,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Start, serve until `stop` is set, end in order. Raises what ended a part of it before."""
        if not await self._start(stop):
            return
        names = {task.get_name(): task for task in map(_named_task, self._parts().items())}
        stopping = asyncio.create_task(stop.wait(), name="stop")
        try:
            done, _ = await asyncio.wait({*names.values(), stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            await self._end(names)
        for task in done - {stopping}:
            if (error := task.exception()) is not None:
                raise error
            raise RuntimeError(f"the {task.get_name()} has ended by itself")

    def receive(self, change: Change) -> None:
        """Take in what the watch saw."""
        self.sweep.heard()
        before = self.queue.earliest()
        now = self._api.clock.now()
        if change.kind == "gone":
            self.index.remove(change.metadata.name, change.metadata.uid)
        elif change.schedule is not None:
            self.index.upsert(change.schedule, now)
        else:
            self.index.upsert_unreadable(change.metadata, change.unreadable, now)
        after = self.queue.earliest()
        if after is not None and (before is None or after < before):
            self.firing.wake()

    def alive(self) -> Sequence[str]:
        """Why this process should be restarted; empty if it should not."""
        if self._started is None:
            return ()
        now = self._api.clock.monotonic()
        told = [*stale("firing loop", self.firing.completed, now)]
        swept = self.sweep.completed or self._started
        told += stale("sweep of the schedules against a fresh list", swept, now, SWEEP_STALE_SECONDS)
        if not self.sweep.loaded.is_set():
            heard = self.sweep.last_heard or self._started
            told += stale("load of the schedules by the watch", heard, now, LOAD_SILENT_SECONDS)
            if now - self._started > LOAD_SECONDS:
                told.append(f"load of the schedules: not complete after {now - self._started:.0f} s")
        if self.sweep.behind_since is not None:
            told += stale("watch on schedules, which missed a change", self.sweep.behind_since, now)
        return told

    def ready(self) -> Sequence[str]:
        """Why this process cannot fire yet; empty if it can."""
        if self.preflight.waiting_for is not None:
            return (self.preflight.waiting_for,)
        told = [] if self.keeper.held() else ["the Lease of this operator is not held"]
        if self.keeper.held() and self.attendance.blind():
            told = [f"the Leases were last listed {self._poller.age():.0f} s ago, {_BLIND}"]
        if self.share.stepped_down:
            told = ["stepped down: the API server answered too late or not at all, the other operators fire"]
        return told if self.sweep.loaded.is_set() else [*told, "the schedules are not loaded yet"]

    def exposition(self) -> bytes:
        """The metrics as Prometheus reads them."""
        counts = dict.fromkeys(("active", "disabled", "refused", "failing", "deleted"), 0)
        for entry in self.index:
            counts[state_of(entry)] += 1
        for state, count in counts.items():
            self.metrics.schedules.labels(state).set(count)
        return self.metrics.text()

    async def _start(self, stop: asyncio.Event) -> bool:
        """Wait for what is needed; False if `stop` was set before it was there."""
        starting = asyncio.create_task(self._begin(), name="start")
        stopping = asyncio.create_task(stop.wait(), name="stop")
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if starting.done():
            await starting
            return True
        starting.cancel()
        await asyncio.wait({starting}, timeout=CANCEL_SECONDS)
        await self.keeper.release(RELEASE_SECONDS - _JOIN_SECONDS)
        return False

    async def _begin(self) -> None:
        await self.preflight.wait()
        await self._poller.first()
        self._started = self._api.clock.monotonic()
        self._watch.start()

    def _parts(self) -> dict[str, Coroutine[Any, Any, None]]:
        now = self._api.clock.now
        return {
            "firing loop": self.firing.run(self.keeper.beat),
            "watch": self._watch_ended(),
            "presence": self._poller.run(),
            "lease": self._lease(),
            "membership": self._membership(),
            "status writer": self.status.run(self.index),
            "reporter": self.reporter.run(),
            "sweep": repeat("the sweep of schedules", lambda: self.sweep.sweep(now()), self.sweep.pause),
            "count of what was missed": repeat(
                "the count of what was missed",
                lambda: self.firing.missed.turn(self.firing.idle),
                self.firing.missed.pause,
                MAX_TURN_SECONDS,
            ),
            "orphans": repeat(
                "the care for orphans", lambda: self._orphans.settle(now()), lambda: ORPHAN_SECONDS
            ),
            "retention": repeat("retention", lambda: self._retention.prune(now()), lambda: RETENTION_SECONDS),
        }

    async def _lease(self) -> None:
        """A share is ours only when we know what is in it: until then the others fire it."""
        await self.sweep.loaded.wait()
        try:
            await self.share.run()
        except NotFound as error:
            # A list of a namespace that is not there is empty, a create in it is the first to be refused.
            hint = f"create it, or set {PREFIX}NAMESPACE"
            raise ConnectError(f"the namespace {self._api.namespace} does not exist: {hint}") from error

    async def _watch_ended(self) -> None:
        await self._watch.ended.wait()
        if (error := self._watch.refused) is not None:
            raise ConnectError(f"the schedules cannot be watched: {error}{remedy(error)}") from error

    async def _membership(self) -> None:
        """When the live operators change, so do the shares: look at every status again."""
        while True:
            members = self.attendance.operators() if self.keeper.held() else frozenset()
            if members != self._members:
                if members:
                    _LOG.info("live operators: %s", ", ".join(sorted(members)))
                else:
                    _LOG.warning("this operator fires nothing: its own Lease is not held")
                self._members = members
                for entry in self.index:
                    self.status.touch(entry.name)
            await asyncio.sleep(1.0)

    async def _end(self, tasks: dict[str, asyncio.Task[None]]) -> None:
        _LOG.info("ending: no further due time is fired", extra={"identity": self.keeper.name})
        self.firing.stop()
        await asyncio.wait({tasks["firing loop"]}, timeout=FINISH_SECONDS)
        for task in tasks.values():
            task.cancel()
        await asyncio.wait(tasks.values(), timeout=CANCEL_SECONDS)
        self.firing.tell_rest()
        # Events first: what a status tells as settled, the next operator does not tell again.
        await self._flush("Events", self.reporter.flush(), FLUSH_SECONDS / 2)
        await self._flush("statuses", self.status.flush(self.index), FLUSH_SECONDS / 3)
        await self._flush("Events", self.reporter.flush(), FLUSH_SECONDS / 6)  # of what these statuses say
        await self._watch.stop(WATCH_STOP_SECONDS)
        await self.keeper.release(RELEASE_SECONDS - _JOIN_SECONDS)

    async def _flush(self, what: str, work: Coroutine[Any, Any, None], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError:
            left = {"events": len(self.reporter), "statuses": len(self.status)}
            _LOG.warning("%s do not get through in the time that is left", what, extra=left)

    def _changed(self, name: str) -> None:
        self.status.touch(name)

    def _tell_gap(self, entry: Entry, gap: Gap) -> None:
        self.reporter.gap(entry, gap)


async def serve(settings: Settings) -> None:
    """Run one operator until SIGTERM or SIGINT. Raises what kept it from going on."""
    check_zone_data()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    api = await open_api(settings.connect, settings.namespace, "operator")
    try:
        operator = Operator(settings, api, new_identity("operator"))
        _LOG.info(
            "starting",
            extra={"namespace": api.namespace, "identity": operator.keeper.name, "tzdata": tzdata_version()},
        )
        health = HealthServer(
            settings.health_host,
            settings.health_port,
            alive=operator.alive,
            ready=operator.ready,
            metrics=operator.exposition,
        )
        async with health:
            await operator.run(stop)
    finally:
        await api.aclose()


def _named_task(part: tuple[str, Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
    return asyncio.create_task(part[1], name=part[0])
