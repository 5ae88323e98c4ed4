"""Waits for conditions, each with a bound."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

T = TypeVar("T")
_POLL_SECONDS = 0.5


def until(question: Callable[[], T], within: float, what: str, every: float = _POLL_SECONDS) -> T:
    """Ask until the answer is true; the answer. Raises AssertionError after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        if answer := question():
            return answer
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:g} s: {what}; the last answer was {answer!r}")
        time.sleep(every)


def now() -> datetime:
    """UTC, by this machine's clock."""
    return datetime.now(UTC)


def whole_minute(instant: datetime) -> datetime:
    """The minute that it is in."""
    return instant.replace(second=0, microsecond=0)


def before_next_minute(seconds: float, room: float = 0.0) -> datetime:
    """Wait until so many seconds before a minute that is `room` seconds further at least; that minute."""
    due = whole_minute(now()) + timedelta(minutes=1)
    if (due - now()).total_seconds() < seconds + room:
        due += timedelta(minutes=1)
    wait_for(due - timedelta(seconds=seconds))
    return due


def wait_for(instant: datetime) -> None:
    """Return at this time, or at once if it has passed."""
    time.sleep(max(0.0, (instant - now()).total_seconds()))
