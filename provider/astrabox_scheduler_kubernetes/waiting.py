"""Runs that wait for their turn: light entries in a heap, no task and no timer for any of them."""

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from astrabox_scheduler_crds.run import Phase, RunInvocation

KEPT_PAYLOAD: Final = 8192
KEPT_RUNS: Final = 1000
"""So many runs with payloads of so few characters are kept whole; the others are read at their turn."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A run that is ours to dispatch.

    `assignee` is the Lease name it is labelled with, `lapses` how often the Lease had been lost by
    then; `ready` is in monotonic seconds. `run` is None where it must be read first.
    """

    name: str
    assignee: str
    lapses: int
    version: str | None
    ready: float = 0.0
    run: RunInvocation | None = None
    progress: tuple[int, bool] = (0, False)
    """Attempts, and whether the last one has ended, as far as known: an echo of the past has less."""


def progress_of(run: RunInvocation) -> tuple[int, bool]:
    """How far a run had come."""
    return run.status.attempts, run.status.phase == Phase.RETRYING


class Waiting:
    """Entries by name, given out in the order in which they become ready, then first in first out."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, Entry]] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._order = count()
        self._kept = 0

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def names(self) -> Iterable[str]:
        """Of those that wait."""
        return self._entries.keys()

    def add(self, entry: Entry) -> None:
        """Put in an entry, in place of one with the same name unless that one has come further.

        One that has come as far keeps its turn: somebody's label sends no run to the back.
        """
        _, old = self._entries.get(entry.name, (0, None))
        if old is not None and old.lapses == entry.lapses:
            if old.progress > entry.progress:
                return
            if old.progress == entry.progress:
                entry = replace(entry, ready=min(old.ready, entry.ready))
        self.discard(entry.name)
        entry = self._slim(entry)
        number = next(self._order)
        self._entries[entry.name] = (number, entry)
        heapq.heappush(self._heap, (entry.ready, number, entry.name))

    def discard(self, name: str) -> None:
        """Forget it."""
        number_and_entry = self._entries.pop(name, None)
        if number_and_entry is not None and number_and_entry[1].run is not None:
            self._kept -= 1

    def pop_ready(self, monotonic: float) -> Entry | None:
        """Take out the first entry that is ready at `monotonic`, None if none is."""
        ready = self.next_ready()
        if ready is None or ready > monotonic:
            return None
        _, _, name = heapq.heappop(self._heap)
        entry = self._entries[name][1]
        self.discard(name)
        return entry

    def next_ready(self) -> float | None:
        """When the first entry is ready, monotonic seconds; None without entries."""
        while self._heap:
            ready, number, name = self._heap[0]
            current = self._entries.get(name)
            if current is not None and current[0] == number:
                return ready
            heapq.heappop(self._heap)
        return None

    def drain(self) -> list[Entry]:
        """Take out everything."""
        entries = [entry for _, entry in self._entries.values()]
        self._entries.clear()
        self._heap.clear()
        self._kept = 0
        return entries

    def _slim(self, entry: Entry) -> Entry:
        if entry.run is None:
            return entry
        if self._kept < KEPT_RUNS and len(entry.run.spec.payload) <= KEPT_PAYLOAD:
            self._kept += 1
            return entry
        return replace(entry, run=None)
