"""Writes that fail: when to try on, and what is told of them. Decided without IO.

All times are monotonic seconds.
"""

from typing import Final

from astrabox_scheduler_operator.repeat import GIVE_UP_AFTER

RETRY_SECONDS: Final = 5.0
"""Until the same one is tried again."""
LONGEST_PAUSE_SECONDS: Final = 30.0
"""In which nothing is written, while nothing gets through: it begins with RETRY_SECONDS and doubles."""


class Setback:
    """One that fails holds up no other; some that fail in a row, with no success between, hold up all."""

    def __init__(self) -> None:
        self._failing: set[str] = set()
        self._in_a_row: set[str] = set()
        self._pause = 0.0
        self._until = float("-inf")
        self._told: set[type] = set()

    def __contains__(self, name: str) -> bool:
        """Whether the latest write of this one has failed."""
        return name in self._failing

    def pauses(self, now: float) -> bool:
        """Whether nothing is to be written yet."""
        return now < self._until

    def failed(self, name: str, error: Exception, now: float) -> bool:
        """Note it; True for the first error of its kind, which is to be told."""
        self._failing.add(name)
        self._in_a_row.add(name)
        # What was under way when the pause began says nothing new.
        if len(self._in_a_row) >= GIVE_UP_AFTER and not self.pauses(now):
            self._pause = min(max(RETRY_SECONDS, 2 * self._pause), LONGEST_PAUSE_SECONDS)
            self._until = now + self._pause
        first = type(error) not in self._told
        self._told.add(type(error))
        return first

    def succeeded(self, name: str) -> bool:
        """Note it; True where with it all that failed have succeeded, which is to be told."""
        self._in_a_row.clear()
        self._pause, self._until = 0.0, float("-inf")
        self.dropped(name)
        if self._failing or not self._told:
            return False
        self._told.clear()
        return True

    def dropped(self, name: str) -> None:
        """It is not to be written any more, or is another operator's."""
        self._failing.discard(name)
        self._in_a_row.discard(name)
