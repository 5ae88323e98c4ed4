"""What can go wrong with a cron expression, a zone or a due time."""

# ruff: noqa: N818 - the names say what is wrong; that they are errors is said by their base.


class CronError(ValueError):
    """A due time cannot be computed; the message is one sentence that says what to do.

    `field` names the part at fault: "minute", "hour", "day of month", "month", "day of week",
    "expression" (the five fields as a whole) or "timezone". Messages are plain ASCII, whatever
    text was given.
    """

    def __init__(self, message: str, field: str = "expression") -> None:
        super().__init__(message)
        self.field = field


class InvalidCron(CronError):
    """The expression is refused."""


class InvalidZone(CronError):
    """The zone is refused, or the installed zone data does not have it."""

    def __init__(self, message: str, field: str = "timezone") -> None:
        super().__init__(message, field)


class NoDueTime(CronError):
    """There is no later due time that a `datetime` can hold (the years 1 to 9999)."""


class ZoneDataMissing(RuntimeError):
    """The installed `tzdata` package cannot be read: no due time can be computed at all."""


def quoted(text: str, limit: int = 40) -> str:
    """Return text as given by a user in quotes, plain ASCII and cut to `limit` characters."""
    shown = text if len(text) <= limit else text[: limit - 3] + "..."
    return '"' + ascii(shown)[1:-1] + '"'
