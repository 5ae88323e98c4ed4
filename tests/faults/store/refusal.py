"""What AstraBox is told while its store cannot be reached."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from astrabox.seams.scheduler import SchedulerUnavailable

_FOREIGN: Final = (
    "etcd",
    "kube",
    "resourceversion",
    "http",
    "409",
    "500",
    "429",
    "lease",
    "namespace",
    "/apis/",
)


async def refused(call: Callable[[], Any]) -> SchedulerUnavailable | None:
    """Call AstraBox's way: the error of the seam, None if it was done; any other error is raised.

    G9: not a word of the engine is in its text.
    """
    try:
        await call()
    except SchedulerUnavailable as error:
        text = str(error).lower()
        assert not [word for word in _FOREIGN if word in text], text
        assert "try again" in text, text
        return error
    return None
