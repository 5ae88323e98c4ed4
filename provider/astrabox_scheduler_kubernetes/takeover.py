"""The sweep: whatever the watch did not bring, and whatever has lost its process, is found again.

It looks at what is, not at what happened, so it needs no event to be right. Of the orphans each
process takes only those that the hash gives it, so that processes hardly ever meet at one run.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from astrabox_scheduler_client.errors import ApiError, Conflict, MalformedAnswer, NotFound
from astrabox_scheduler_client.fan_out import fan_out
from astrabox_scheduler_client.presence import PresencePoller
from astrabox_scheduler_client.runs import Runs
from astrabox_scheduler_crds.assignment import owner
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL, DEPLOYMENT_LABEL
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import deployment_key, parse_scheduled_run_name
from astrabox_scheduler_crds.presence import Presence, PresenceObserver
from astrabox_scheduler_crds.recovery import Orphan, settle_orphan
from astrabox_scheduler_crds.run import Phase, RunInvocation
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_kubernetes.intake import Term
from astrabox_scheduler_kubernetes.telling import Told

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")


@dataclass(frozen=True, slots=True)
class Providers:
    """Who dispatches at present, as far as the Leases tell."""

    poller: PresencePoller
    observer: PresenceObserver

    def now(self, monotonic: float) -> Presence:
        """As of `monotonic` seconds."""
        return self.observer.presence("provider", monotonic)

    async def settle(self, run: RunInvocation, since: datetime, clock: ServerClock, fresh: float) -> Orphan:
        """Decide about a run that was due before `since`, when our own Lease was acquired. Raises ApiError.

        What has been proved stays so; for the rest the Leases are listed, unless that was done after
        `since` and at most `fresh` seconds ago.
        """
        settled = settle_orphan(run, self.now(clock.monotonic()), clock.now())
        age = self.poller.age()
        lately = age is not None and age <= fresh and clock.now() - timedelta(seconds=age) >= since
        if settled is Orphan.ADOPT or lately:
            return settled
        await self.poller.refresh()
        return settle_orphan(run, self.now(clock.monotonic()), clock.now())


class Held(Protocol):
    """What the dispatcher has in hand."""

    def holds(self, name: str) -> bool:
        """Whether the run waits or is in progress here."""

    def in_progress(self) -> dict[str, str]:
        """The runs in progress here, and the assignee under which each was begun."""

    def gone(self, name: str) -> None:
        """The run was deleted or has another assignee."""

    def take(self, run: RunInvocation, term: Term) -> None:
        """Take in a run that is ours."""

    def take_name(self, meta: ObjectMeta, term: Term) -> None:
        """The same of one that is still to be read."""


class Takeover:
    """One sweep at a time; `current` tells the term we are in, None while the Lease is not held."""

    def __init__(
        self,
        runs: Runs,
        providers: Providers,
        clock: ServerClock,
        held: Held,
        *,
        current: Callable[[], Term | None],
        told: Told,
    ) -> None:
        self._runs = runs
        self._providers = providers
        self._clock = clock
        self._held = held
        self._current = current
        self._told = told
        self._waiting: set[tuple[str | None, str | None]] = set()

    async def sweep(self) -> bool:
        """Look at every unfinished run; False if one could not be settled now. Raises ApiError."""
        term = self._current()
        if term is None:
            return True
        in_progress = self._held.in_progress()
        found = await self._runs.list_unfinished_metadata()
        await self._let_go(in_progress, found)
        # After the list: whoever a run is assigned to had its Lease before, so it is seen now.
        await self._providers.poller.refresh()
        providers = self._providers.now(self._clock.monotonic())
        live, heirs = providers.live | {term.assignee}, providers.assignable | {term.assignee}
        self._waiting &= {(meta.uid, meta.resource_version) for meta in found}
        orphans = []
        for meta in found:
            assignee = meta.labels.get(ASSIGNEE_LABEL)
            if self._held.holds(meta.name):
                continue
            if assignee == term.assignee:
                self._held.take_name(meta, term)
            elif assignee in live or self._waits(meta, providers):
                continue
            elif owner(meta.name, heirs) == term.assignee:
                orphans.append(meta)
        return await self._settle_all(orphans, providers, term)

    async def _let_go(self, in_progress: Mapping[str, str], found: Iterable[ObjectMeta]) -> None:
        """Tell of what is in progress here and not ours any more: the watch may have had a gap just then."""
        there = {meta.name: meta.labels.get(ASSIGNEE_LABEL) for meta in found}
        for name, assignee in in_progress.items():
            if name in there:
                ours = there[name] == assignee
            else:  # deleted, or it has ended: by us, if it is ours
                ours = await self._is_assigned(name, assignee)
            if not ours:
                self._held.gone(name)

    async def _is_assigned(self, name: str, assignee: str) -> bool:
        try:
            run = await self._runs.get(name)
        except NotFound:
            return False
        except MalformedAnswer:
            return True  # its own attempt finds out
        return run.metadata.labels.get(ASSIGNEE_LABEL) == assignee

    async def _settle_all(self, orphans: Iterable[ObjectMeta], providers: Presence, term: Term) -> bool:
        """False if one could not be settled for a reason that may pass."""

        async def settle(meta: ObjectMeta) -> bool:
            if self._current() != term:
                return True
            try:
                await self._settle(meta.name, providers, term)
            except (Conflict, NotFound):
                _LOG.debug("run %s was changed by another process", meta.name)
            except ApiError as error:
                level = self._told.level(logging.WARNING, meta.name, meta.resource_version, type(error))
                _LOG.log(level, "run %s cannot be taken over: %s", meta.name, error)
                return error.permanent or isinstance(error, MalformedAnswer)
            return True

        return all(await fan_out(settle, orphans))

    async def _settle(self, name: str, providers: Presence, term: Term) -> None:
        run = await self._runs.get(name)
        assignee = run.metadata.labels.get(ASSIGNEE_LABEL)
        unknown = not isinstance(run.status.phase, Phase)
        if run.status.finished or unknown or assignee in (providers.live | {term.assignee}):
            return
        settled = settle_orphan(run, providers, self._clock.now())
        if settled is Orphan.ADOPT:
            await self._adopt(run, term)
        else:
            self._waiting.add((run.metadata.uid, run.metadata.resource_version))

    async def _adopt(self, run: RunInvocation, term: Term) -> None:
        labels = {ASSIGNEE_LABEL: term.assignee}
        if DEPLOYMENT_LABEL not in run.metadata.labels:
            labels[DEPLOYMENT_LABEL] = deployment_key(run.spec.deployment_id)
        version = run.metadata.resource_version
        metadata = await self._runs.patch_labels(run.metadata.name, labels, resource_version=version)
        before = run.metadata.labels.get(ASSIGNEE_LABEL) or "nobody"
        _LOG.info("run %s is taken over from %s", run.metadata.name, before)
        self._held.take(run.changed(metadata=metadata), term)

    def _waits(self, meta: ObjectMeta, providers: Presence) -> bool:
        """Whether it was read and is not to be started before some process shows that it was there."""
        if (meta.uid, meta.resource_version) not in self._waiting:
            return False
        parsed = parse_scheduled_run_name(meta.name)
        return parsed is not None and not providers.proves(parsed[1])
