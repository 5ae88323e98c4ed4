"""Whole minutes, in seconds since the epoch, and waits for them: the times at which rules are due."""

from __future__ import annotations

import asyncio
from typing import Final

from tests.faults.stage.rig import Rig

MINUTE: Final = 60.0


def minute_after(rig: Rig, lead: float) -> float:
    """The first whole minute that is at least `lead` seconds away."""
    return MINUTE * -(-(rig.now() + lead) // MINUTE)


def minutes_between(first: float, last: float) -> list[float]:
    """The whole minutes from `first` to `last`, both included."""
    return [first + number * MINUTE for number in range(round((last - first) / MINUTE) + 1)]


async def until_time(rig: Rig, when: float) -> None:
    """Wait for a time of the test machine's clock: the only event that a due time gives."""
    await asyncio.sleep(max(0.0, when - rig.now()))
