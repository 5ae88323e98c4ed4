"""When to look at which schedule: one heap, with entries that were moved left behind and ignored."""

import heapq
from datetime import datetime
from itertools import count
from typing import Final

_SLACK: Final = 1024


class DueQueue:
    """At most one time per name; `put` moves it. All datetimes aware UTC."""

    def __init__(self) -> None:
        self._heap: list[tuple[datetime, int, str]] = []
        self._planned: dict[str, tuple[datetime, int]] = {}
        self._tickets = count()

    def __len__(self) -> int:
        return len(self._planned)

    def put(self, name: str, at: datetime) -> None:
        """Look at `name` at `at`, and at no other time."""
        ticket = next(self._tickets)
        self._planned[name] = (at, ticket)
        heapq.heappush(self._heap, (at, ticket, name))
        if len(self._heap) > 2 * len(self._planned) + _SLACK:
            self._rebuild()

    def drop(self, name: str) -> None:
        """Do not look at `name` any more."""
        self._planned.pop(name, None)

    def planned(self, name: str) -> datetime | None:
        """When `name` will be looked at."""
        found = self._planned.get(name)
        return found[0] if found is not None else None

    def pop_due(self, now: datetime, limit: int) -> list[str]:
        """Take out the names whose time has come, earliest first, `limit` at most."""
        due: list[str] = []
        while len(due) < limit and (first := self.earliest()) is not None and first <= now:
            name = heapq.heappop(self._heap)[2]
            del self._planned[name]
            due.append(name)
        return due

    def earliest(self) -> datetime | None:
        """The next time at which a name is due to be looked at."""
        while self._heap:
            at, ticket, name = self._heap[0]
            if self._planned.get(name) == (at, ticket):
                return at
            heapq.heappop(self._heap)
        return None

    def recover(self) -> None:
        """Make the heap from what is planned: a lost wake-up costs until the next call, not for ever."""
        self._rebuild()

    def _rebuild(self) -> None:
        self._heap = [(at, ticket, name) for name, (at, ticket) in self._planned.items()]
        heapq.heapify(self._heap)
