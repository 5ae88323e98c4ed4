"""The life of a configured provider: calls at any time, dispatch between start and stop."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.confirm import ScheduleConfirm
from astrabox_scheduler_client.identity import new_identity
from astrabox_scheduler_client.lease_keeper import LeaseKeeper
from astrabox_scheduler_client.lease_term import monotonic
from astrabox_scheduler_client.presence import PresencePoller
from astrabox_scheduler_crds.firing import START_MAX_AGE_SECONDS
from astrabox_scheduler_crds.presence import PresenceObserver
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_kubernetes.attempt import Desk
from astrabox_scheduler_kubernetes.calls import Calls
from astrabox_scheduler_kubernetes.confirming import Confirming
from astrabox_scheduler_kubernetes.dispatcher import Dispatcher
from astrabox_scheduler_kubernetes.errors import in_seam_words
from astrabox_scheduler_kubernetes.reconcile import Reconcile
from astrabox_scheduler_kubernetes.recorder import Recorder
from astrabox_scheduler_kubernetes.requests import Requests
from astrabox_scheduler_kubernetes.schedules import Schedules
from astrabox_scheduler_kubernetes.seam import RunHandler, Schedule, ScheduledRun
from astrabox_scheduler_kubernetes.settings import Settings
from astrabox_scheduler_kubernetes.spared import SecondLook
from astrabox_scheduler_kubernetes.store import ROLE, Store
from astrabox_scheduler_kubernetes.suspects import Suspects
from astrabox_scheduler_kubernetes.takeover import Providers
from astrabox_scheduler_kubernetes.timing import SharedPauses, Timing

_LOOK_SECONDS: Final = START_MAX_AGE_SECONDS - 0.5
"""How long a look at schedules is waited for: one that gets no answer must not make the others' too old."""
_LOG = logging.getLogger("astrabox_scheduler_kubernetes")


@dataclass(slots=True)
class _Life:
    """One life between start and stop."""

    keeper: LeaseKeeper
    dispatcher: Dispatcher
    stopping: bool = False


class Engine:
    """Everything behind the provider's methods; each raises errors of the seam only."""

    def __init__(self, settings: Settings, timing: Timing, clock: ServerClock | None = None) -> None:
        self._settings = settings
        self._timing = timing
        self._store = Store(settings, clock)
        self._schedules = Schedules(self._store, timing, settings.max_active_schedules)
        self._requests = Requests(self._store, timing)
        self._second_look = SecondLook(self._store, timing)
        self._begun = monotonic()
        self._life: _Life | None = None
        self._changing = asyncio.Lock()

    async def start(self, handler: RunHandler) -> None:
        """Take a Lease and begin to dispatch."""
        async with self._changing:
            if self._life is not None:
                _LOG.warning("start was called twice: dispatch goes on with the first handler")
                return
            with in_seam_words("Dispatch has not begun"):
                api = await self._store.acquire()
                try:
                    self._life = await self._begin(api, handler)
                except BaseException:
                    await self._store.release()
                    raise

    async def stop(self) -> None:
        """Hand over what has not ended, and leave nothing open; a second call waits for the first."""
        if self._life is not None:
            self._life.stopping = True
        margin = self._timing.stop_margin
        end = monotonic() + self._settings.stop_timeout_seconds + margin
        async with self._changing:
            life = self._life
            if life is not None:
                life.stopping = True  # it may have begun while we waited
                await self._end(life, end)
            await self._schedules.stop()
            await self._requests.unsaved.stop(min(margin, end - monotonic()))
            await self._second_look.stop()

    async def reconcile(self, schedules: Sequence[Schedule]) -> None:
        """See `Reconcile`."""
        with in_seam_words("The schedules could not be compared with the stored ones"):
            async with self._store.use() as api:
                most, begun = self._settings.max_active_schedules, self._begun
                reconcile = Reconcile(api, self._timing, most, lambda: monotonic() - begun)
                try:
                    await reconcile.run(schedules)
                finally:
                    await self._second_look.begin(reconcile.spared)

    async def apply(self, schedule: Schedule) -> None:
        """Create or change one schedule."""
        with in_seam_words("The schedule was not saved"):
            await self._schedules.apply(schedule)

    async def delete(self, deployment_id: str) -> None:
        """Remove one schedule."""
        with in_seam_words("The schedule was not deleted"):
            await self._schedules.delete(deployment_id)

    async def enqueue(
        self,
        deployment_id: str,
        payload: Mapping[str, Any],
        trigger: Literal["manual", "replay"],
        source: str | None,
    ) -> ScheduledRun:
        """Save a run, assigned to this process while it dispatches."""
        with in_seam_words("The run was not saved"):
            return await self._requests.enqueue(deployment_id, payload, trigger, source, self._assignee())

    async def list_runs(self, deployment_id: str, limit: int) -> list[ScheduledRun]:
        """The newest runs of a Deployment."""
        with in_seam_words("The runs could not be listed"):
            return await self._requests.list_runs(deployment_id, limit)

    def _assignee(self) -> str | None:
        life = self._life
        if life is None or life.stopping:
            return None
        name = life.keeper.name
        return name if life.keeper.held() and life.keeper.name == name else None

    async def _begin(self, api: SchedulerApi, handler: RunHandler) -> _Life:
        settings, timing = self._settings, self._timing
        keeper = LeaseKeeper(
            self._store.connect_settings,
            api.namespace,
            ROLE,
            new_identity(),
            duration=timing.lease_duration,
            period=timing.lease_period,
            loop_dead_after=settings.loop_dead_after_seconds,
            clock=self._store.clock,
        )
        await keeper.start()
        try:
            observer = PresenceObserver()
            poller = PresencePoller(api.leases, observer, self._store.clock, (ROLE,), timing.presence)
            providers = Providers(poller, observer)
            await poller.refresh()
        except BaseException:
            await keeper.release()
            raise
        desk = Desk(
            runs=api.runs,
            recorder=Recorder(api.runs, timing),
            confirming=Confirming(ScheduleConfirm(api.schedules, self._store.clock, patience=_LOOK_SECONDS)),
            settle=lambda run, since: providers.settle(run, since, self._store.clock, timing.presence),
            fence=keeper,
            calls=Calls(handler, settings.handler_timeout_seconds),
            policy=settings.retry_policy,
            suspects=Suspects(settings.retry_policy),
            clock=self._store.clock,
            timing=timing,
            again=SharedPauses(timing),
            stopping=lambda: life.stopping,
        )
        dispatcher = Dispatcher(
            api.runs,
            keeper,
            providers,
            desk,
            concurrency=settings.concurrency,
            undecided=self._requests.unsaved,
        )
        life = _Life(keeper, dispatcher)
        life.dispatcher.start()
        _LOG.info("dispatch has begun as %s in namespace %s", keeper.name, api.namespace)
        return life

    async def _end(self, life: _Life, end: float) -> None:
        """End one life; `end` is the second of `monotonic` by which its Lease is to be free."""
        try:
            await life.dispatcher.drain(self._settings.stop_timeout_seconds)
        finally:
            try:
                await life.keeper.release(max(1.0, end - monotonic()))
            finally:
                self._life = None
                await self._store.release()
                _LOG.info("dispatch has ended as %s", life.keeper.name)
