"""The only time rule that the reference provider knows by itself."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MINUTE: Final = timedelta(minutes=1)


class EveryMinute:
    """A calendar of ``* * * * *``, which is due at the same instants in every zone."""

    def check(self, cron: str, timezone: str) -> None:
        """Raise ValueError for any other expression, or an unknown zone."""
        if cron.split() != ["*"] * 5:
            raise ValueError("this calendar knows only * * * * *")
        try:
            ZoneInfo(timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError(f"there is no zone {timezone!r}") from error

    def between(self, cron: str, timezone: str, start: datetime, end: datetime) -> Iterator[datetime]:  # noqa: ARG002
        """Return the full minutes m with start < m < end, aware UTC."""
        minute = start.astimezone(UTC).replace(second=0, microsecond=0) + MINUTE
        while minute < end:
            yield minute
            minute += MINUTE
