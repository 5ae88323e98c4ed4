"""Dispatch: runs come in, wait, are carried out so many at a time, and are handed over at the end."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Protocol

from astrabox_scheduler_client.errors import ApiError
from astrabox_scheduler_client.lease_keeper import LeaseKeeper
from astrabox_scheduler_client.runs import Runs
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import Phase, RunInvocation
from astrabox_scheduler_kubernetes.attempt import Attempt, Desk, HandedOver
from astrabox_scheduler_kubernetes.drain import Drain
from astrabox_scheduler_kubernetes.intake import Intake, Term
from astrabox_scheduler_kubernetes.takeover import Providers, Takeover
from astrabox_scheduler_kubernetes.telling import Trouble, trace_of
from astrabox_scheduler_kubernetes.timing import Pauses
from astrabox_scheduler_kubernetes.waiting import Entry, Waiting, progress_of

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")
_FAULT_PAUSE = 1.0
_ENDED_KEPT = 1000


class Undecided(Protocol):
    """Runs whose own create may not be answered yet; none of them may be begun."""

    def is_open(self, name: str) -> bool:
        """Whether it is one of them."""

    async def decided(self, name: str) -> None:
        """Wait until it is not."""


class Dispatcher:
    """Owns every run labelled with our Lease, on the event loop on which `start` is called."""

    def __init__(
        self,
        runs: Runs,
        keeper: LeaseKeeper,
        providers: Providers,
        desk: Desk,
        *,
        concurrency: int,
        undecided: Undecided,
    ) -> None:
        """At most `concurrency` attempts are in progress at a time."""
        self._keeper = keeper
        self._providers = providers
        self._desk = desk
        self._timing = desk.timing
        self._clock = desk.clock
        self._concurrency = concurrency
        self._undecided = undecided
        self._intake = Intake(runs, desk.timing, self.take, self.gone, desk.told)
        self._takeover = Takeover(runs, providers, desk.clock, self, current=self._term, told=desk.told)
        self._sweeping = Trouble(
            "unfinished runs cannot be looked through", "unfinished runs can be looked through again"
        )
        self._waiting = Waiting()
        self._in_progress: dict[str, tuple[Attempt, asyncio.Task[None]]] = {}
        self._ended: dict[str, None] = {}
        """Runs that have lately ended here: what a slow watch still tells of them is of the past."""
        self._services: list[asyncio.Task[None]] = []
        self._following: tuple[Term, asyncio.Task[None]] | None = None
        self._seen: frozenset[tuple[str, bool]] = frozenset()
        """The live processes, and whether each may be assigned runs, as of the last look."""
        self._work = asyncio.Event()
        self._sweep_now = asyncio.Event()
        desk.suspects.has_place = self._has_place

    def start(self) -> None:
        """Begin; the Lease is held by now."""
        self._heartbeat()
        for name, service in (
            ("pump", self._pump),
            ("heart", self._heart),
            ("sweep", self._sweeps),
            ("presence", self._providers.poller.run),
        ):
            self._services.append(asyncio.create_task(_for_ever(name, service), name=f"astrabox {name}"))

    async def drain(self, grace: float) -> None:
        """Begin nothing more, let what is in progress end within `grace` seconds, hand the rest over.

        What is still assigned to us meanwhile, by whoever has not seen the mark yet, goes on as it comes.
        However this ends, no call goes on after it that can be cancelled, and nothing is taken in.
        """
        self._keeper.drain()
        drain = Drain(
            self._in_progress, self._waiting, self._desk, self._keeper.beat, self._undecided.is_open
        )
        try:
            await self._end_services()
            await drain.run(grace)
        finally:
            # A stop that is cancelled releases the Lease next, and others begin what is in hand here.
            drain.cancel()
            self._desk.calls.cancel_left()
            await self._end_intake()

    def holds(self, name: str) -> bool:
        """Whether the run waits or is in progress here."""
        return name in self._in_progress or name in self._waiting

    def in_progress(self) -> dict[str, str]:
        """The runs in progress, and the assignee under which each was begun."""
        return {name: attempt.entry.assignee for name, (attempt, _) in self._in_progress.items()}

    def take(self, run: RunInvocation, term: Term) -> None:
        """Take in a run that is ours, or that has changed; nothing for one that is in progress."""
        name, status = run.metadata.name, run.status
        if run.metadata.labels.get(ASSIGNEE_LABEL) != term.assignee:
            return
        if name in self._in_progress or name in self._ended:
            return
        if status.finished or not isinstance(status.phase, Phase):
            self._waiting.discard(name)
            return
        ready = self._monotonic_of(status.next_attempt_time)
        version = run.metadata.resource_version
        self._add(Entry(name, term.assignee, term.lapses, version, ready, run, progress_of(run)))

    def take_name(self, meta: ObjectMeta, term: Term) -> None:
        """Take in a run of which only the metadata is known."""
        ready = self._monotonic_of(None)
        self._add(Entry(meta.name, term.assignee, term.lapses, meta.resource_version, ready))

    def _add(self, entry: Entry) -> None:
        self._waiting.add(entry)
        self._work.set()

    def gone(self, name: str) -> None:
        """The run was deleted or has another assignee: whatever we do for it is in vain."""
        self._waiting.discard(name)
        self._ended.pop(name, None)  # another one may get this name
        if name in self._in_progress:
            attempt, task = self._in_progress[name]
            if not attempt.lost and not task.done():  # one that is done is being handed over
                _LOG.info("run %s was deleted or taken over: its attempt is cancelled", name)
                attempt.lost = True
                task.cancel()

    def _term(self) -> Term | None:
        keeper = self._keeper
        term = Term(keeper.name, keeper.lapses)
        # Held after both were read: then no lapse lies between them that has not been counted.
        return (
            term if keeper.held() and keeper.lapses == term.lapses and keeper.name == term.assignee else None
        )

    async def _heart(self) -> None:
        while True:
            self._heartbeat()
            await asyncio.sleep(self._timing.beat)

    def _heartbeat(self) -> None:
        """Say that the loop lives; notice a new term of ours, and processes that have gone."""
        self._keeper.beat()
        term = self._term()
        if term is not None and (self._following is None or self._following[0] != term):
            if self._following is not None:
                self._following[1].cancel()
                self._waiting.drain()  # labelled with the name that was lost; the sweep settles them
                _LOG.warning("the Lease was lost and is held again as %s", term.assignee)
            following = _for_ever("intake", partial(self._intake.follow, term))
            self._following = term, asyncio.create_task(following, name="astrabox intake")
            self._sweep_now.set()
        presence = self._providers.now(self._clock.monotonic())
        seen = frozenset((name, name in presence.assignable) for name in presence.live)
        if any(each not in seen for each in self._seen):
            self._sweep_now.set()
        self._seen = seen
        self._work.set()

    async def _sweeps(self) -> None:
        pauses = Pauses(self._timing)
        while True:
            self._sweep_now.clear()
            pause = self._timing.sweep
            try:
                if await self._takeover.sweep():
                    pauses.reset()
                else:
                    pause = min(pause, pauses.next())
            except ApiError as error:
                pause = min(pause, pauses.next(error.retry_after))
                self._sweeping.failed(error)
            else:
                self._sweeping.worked()
            try:
                async with asyncio.timeout(pause):
                    await self._sweep_now.wait()
            except TimeoutError:
                continue

    async def _pump(self) -> None:
        """Begin attempts as runs become ready and places free."""
        while True:
            self._work.clear()
            self._desk.suspects.go_on()
            while self._has_place() and self._keeper.held():
                entry = self._waiting.pop_ready(self._clock.monotonic())
                if entry is None:
                    break
                self._begin(entry)
            await self._until_work()

    def _has_place(self) -> bool:
        return len(self._in_progress) - self._desk.suspects.waiting < self._concurrency

    async def _until_work(self) -> None:
        ready = self._waiting.next_ready()
        pause = None
        if ready is not None and self._has_place():
            pause = max(ready - self._clock.monotonic(), 0.001) if self._keeper.held() else self._timing.beat
        try:
            async with asyncio.timeout(pause):
                await self._work.wait()
        except TimeoutError:
            return

    def _begin(self, entry: Entry) -> None:
        if entry.lapses != self._keeper.lapses:
            return  # its label is that of a Lease we have lost; the sweep settles it
        attempt = Attempt(entry, self._desk)
        task = asyncio.create_task(self._carry_out(attempt), name=f"astrabox run {entry.name}")
        self._in_progress[entry.name] = attempt, task

    async def _carry_out(self, attempt: Attempt) -> None:
        entry = attempt.entry
        again: datetime | None = None
        try:
            await self._undecided.decided(entry.name)
            again = await attempt.carry_out()
        except HandedOver:
            return  # stays in hand until the drain has written it
        except Exception as error:  # noqa: BLE001 - logged; one run must not end all others
            attempt.lost = True
            _LOG.error("run %s is left to the next sweep by a fault: %s", entry.name, trace_of(error))
        except asyncio.CancelledError:
            if not attempt.lost:
                raise  # by the drain
        if attempt.lost:
            await attempt.take_back()  # in hand until then, so that our own sweep does not come between
        self._in_progress.pop(entry.name, None)
        if attempt.run is not None and attempt.run.status.finished:
            self._ended[entry.name] = None
            if len(self._ended) > _ENDED_KEPT:
                del self._ended[next(iter(self._ended))]
        if again is not None:
            self._take_again(attempt, self._monotonic_of(again))
        self._work.set()

    def _take_again(self, attempt: Attempt, ready: float) -> None:
        entry, run = attempt.entry, attempt.run
        if run is None:
            self._add(replace(entry, ready=ready))
        else:
            version = run.metadata.resource_version
            self._add(replace(entry, version=version, ready=ready, run=run, progress=progress_of(run)))

    def _monotonic_of(self, instant: datetime | None) -> float:
        """None is now, not ever: what comes in later would else always stand before what is tried again."""
        if instant is None:
            return self._clock.monotonic()
        return self._clock.monotonic() + (instant - self._clock.now()).total_seconds()

    async def _end_services(self) -> None:
        services, self._services = self._services, []
        await _end(*services)

    async def _end_intake(self) -> None:
        following, self._following = self._following, None
        if following is not None:
            await _end(following[1])


async def _end(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _for_ever(name: str, service: Callable[[], Awaitable[None]]) -> None:
    """A fault of ours in one of the loops must neither end it nor stay unseen."""
    while True:
        try:
            await service()
        except Exception as error:  # noqa: BLE001 - logged; see above
            _LOG.error("the %s loop failed and is begun again: %s", name, trace_of(error))
            await asyncio.sleep(_FAULT_PAUSE)
