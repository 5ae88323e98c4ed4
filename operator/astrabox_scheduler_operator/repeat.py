"""Background work that goes round: it waits for an API server that is away; a bug ends the process."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from astrabox_scheduler_client.errors import ApiError

RETRY_SECONDS: Final = 3.0
GIVE_UP_AFTER: Final = 3
"""After so many calls of one turn that fail it ends: each may take as long as a time limit."""
_LOG = logging.getLogger(__name__)


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
