"""What AstraBox is told while its store cannot be reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from astrabox.seams.scheduler import SchedulerUnavailable
from tests.faults.history.errors import foreign_word


async def refused(call: Callable[[], Any]) -> SchedulerUnavailable | None:
    """Call AstraBox's way: the error of the seam, None if it was done; any other error is raised.

    G9: not a word of the engine is in its text.
    """
    try:
        await call()
    except SchedulerUnavailable as error:
        text = str(error)
        assert foreign_word(text) is None, text
        assert "try again" in text.lower(), text
        return error
    return None
