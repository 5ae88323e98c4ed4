"""Brings in the runs that are labelled with our Lease: one list, then a watch, and again."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass

from astrabox_scheduler_client.errors import ApiError, MalformedAnswer, Unreachable
from astrabox_scheduler_client.runs import Runs, assigned_to
from astrabox_scheduler_crds.run import RunInvocation
from astrabox_scheduler_kubernetes.telling import Told, Trouble
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
        self._watching = Trouble("runs cannot be watched", "runs can be watched again")

    async def follow(self, term: Term) -> None:
        """Go on until cancelled, whatever fails."""
        pauses = Pauses(self._timing)
        while True:
            try:
                await self._list_and_watch(term, pauses)
            except ApiError as error:
                self._watching.failed(error)
                await asyncio.sleep(pauses.next(error.retry_after))

    async def _list_and_watch(self, term: Term, pauses: Pauses) -> None:
        listing = await self._runs.list_assigned(term.assignee)
        for run in listing.items:
            self._take(run, term)
        version = listing.resource_version
        while True:
            version = await self._watch(term, version, pauses)

    async def _watch(self, term: Term, version: str, pauses: Pauses) -> str:
        """Follow one watch to its end; the version where the next one goes on.

        Only here, not with the list, is it known that things go well: runs may be listed, and each watch
        refused, or broken at once by what lies between.
        """
        loop = asyncio.get_running_loop()
        begun, version_before = loop.time(), version
        try:
            version = await self._take_events(term, version, pauses)
        finally:
            lasted = loop.time() - begun >= self._timing.longest_pause
            if lasted:
                pauses.reset()
        if not lasted and version == version_before:
            raise Unreachable("the watch of runs has ended at once", reason="Ended")
        self._works(pauses)
        return version

    def _works(self, pauses: Pauses) -> None:
        pauses.reset()
        self._watching.worked()

    async def _take_events(self, term: Term, version: str, pauses: Pauses) -> str:
        events = self._runs.watch(
            assigned_to(term.assignee), version, self._timing.watch, self._timing.watch_idle
        )
        async with aclosing(events):
            async for event in events:
                if event.resource_version and event.resource_version != version:
                    version = event.resource_version
                    self._works(pauses)
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
