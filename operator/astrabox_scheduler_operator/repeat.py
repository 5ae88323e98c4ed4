"""Background work that goes round: it waits for an API server that is away; a bug ends the process."""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, TypeVar

from astrabox_scheduler_client.errors import ApiError

RETRY_SECONDS: Final = 3.0
GIVE_UP_AFTER: Final = 3
"""So many calls of one turn fail and none succeeds: nothing gets through, and each may take long."""
_LOG = logging.getLogger(__name__)
T = TypeVar("T")


class Tries:
    """What became of the calls of one turn: one that fails holds up no other, as long as any succeed."""

    def __init__(self) -> None:
        self._first_error: ApiError | None = None
        self._failed = self._succeeded = 0

    @property
    def given_up(self) -> bool:
        """Whether nothing gets through."""
        return self._failed >= GIVE_UP_AFTER and not self._succeeded

    def failed(self, error: ApiError) -> None:
        """Note it."""
        self._first_error = self._first_error or error
        self._failed += 1

    def succeeded(self) -> None:
        """Note it."""
        self._succeeded += 1

    def raise_if_given_up(self) -> None:
        """Raises the first ApiError where nothing got through."""
        if self.given_up and self._first_error is not None:
            raise self._first_error


def shuffled(items: Iterable[T]) -> list[T]:
    """In another order each time, so that the same few which fail do not come first for ever."""
    found = list(items)
    random.shuffle(found)
    return found


async def repeat(
    what: str, turn: Callable[[], Awaitable[object]], pause: Callable[[], float], retry: float = RETRY_SECONDS
) -> None:
    """Do `turn` again and again, with `pause()` seconds between, until cancelled.

    An ApiError is told once, when it begins and when it is over; any other error is raised.
    """
    failing = False
    while True:
        try:
            await turn()
        except ApiError as error:
            if not failing:
                _LOG.warning("%s does not get through, trying on: %s", what, error)
            failing = True
            await asyncio.sleep(min(retry, pause()))
        else:
            if failing:
                _LOG.info("%s gets through again", what)
            failing = False
            await asyncio.sleep(pause())
