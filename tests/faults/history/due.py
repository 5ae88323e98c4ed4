"""Due times of an expression, minute by minute, without the product's calculus."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

from tests.property.cron.oracle import Matcher, scan

_UTC = frozenset({"UTC", "Etc/UTC"})
_MINUTE = 60


@lru_cache(maxsize=4096)
def due_times(cron: str, zone: str, begin: float, end: float) -> tuple[float, ...]:
    """Due times in (begin, end], seconds since the epoch; none for an expression that cannot be read."""
    first = int(begin // _MINUTE + 1) * _MINUTE
    try:
        if zone not in _UTC:
            start, until = instant(first - _MINUTE), instant(int(end // _MINUTE) * _MINUTE)
            return tuple(due.timestamp() for due in scan(cron, zone, start, until))
        matches = Matcher(cron)
        return tuple(
            float(minute)
            for minute in range(first, int(end) + 1, _MINUTE)
            if matches(instant(minute).replace(tzinfo=None))
        )
    except (ValueError, TypeError, IndexError, ZeroDivisionError, OSError, AttributeError):
        return ()  # written by a hand; the conformance of the grammar is shown elsewhere


def is_due(cron: str, zone: str, due: float) -> bool:
    """Whether the expression is due at this moment."""
    return due_times(cron, zone, due - 1, due) == (due,)


def text(due: float) -> str:
    """A due time as people read it."""
    return f"{instant(due):%Y-%m-%dT%H:%MZ}"


def instant(second: float) -> datetime:
    """A time in UTC."""
    return datetime.fromtimestamp(second, UTC)
