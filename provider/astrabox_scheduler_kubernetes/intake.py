"""Brings in the runs that are labelled with our Lease: one list, then a watch, and again."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from astrabox_scheduler_client.errors import ApiError, Gone, MalformedAnswer
from astrabox_scheduler_client.runs import Runs, assigned_to
from astrabox_scheduler_crds.run import RunInvocation
from astrabox_scheduler_kubernetes.telling import Told
from astrabox_scheduler_kubernetes.timing import Pauses, Timing

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")


@dataclass(frozen=True, slots=True)
class Term:
    """A stretch of time in which our Lease was held: its name, and the number of losses before."""

    assignee: str
    lapses: int


class Intake:
    """`take` gets every run that is there or changes; `gone` the name of one deleted or given to another."""

    def __init__(
        self,
        runs: Runs,
        timing: Timing,
        take: Callable[[RunInvocation, Term], None],
        gone: Callable[[str], None],
        told: Told,
    ) -> None:
        self._runs = runs
        self._timing = timing
        self._take = take
        self._gone = gone
        self._told = told
        self._failing = False

    async def follow(self, term: Term) -> None:
        """Go on until cancelled, whatever fails."""
        pauses = Pauses(self._timing)
        while True:
            try:
                await self._list_and_watch(term, pauses)
            except Gone:
                _LOG.debug("the watch is too old, the runs are listed again")
            except ApiError as error:
                if not self._failing:
                    _LOG.warning("runs cannot be watched, trying on: %s", error)
                self._failing = True
                await asyncio.sleep(pauses.next(error.retry_after))

    async def _list_and_watch(self, term: Term, pauses: Pauses) -> None:
        listing = await self._runs.list_assigned(term.assignee)
        for run in listing.items:
            self._take(run, term)
        version = listing.resource_version
        pauses.reset()
        self._failing = False
        while True:
            version = await self._watch(term, version)

    async def _watch(self, term: Term, version: str) -> str:
        """Follow one watch to its end; the version where the next one goes on."""
        events = self._runs.watch(
            assigned_to(term.assignee), version, self._timing.watch, self._timing.watch_idle
        )
        async with aclosing(events):
            async for event in events:
                version = event.resource_version or version
                if event.type == "DELETED":
                    self._gone(event.name)
                elif event.run is not None:
                    self._take(event.run, term)
                elif event.type == "UNREADABLE":
                    level = self._told.level(
                        logging.ERROR, event.name, event.resource_version, MalformedAnswer
                    )
                    _LOG.log(level, "run %s cannot be read and is left alone", event.name)
        return version
