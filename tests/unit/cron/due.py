"""Short forms for due times in tests: instants are texts such as 2026-03-08T07:00Z."""

from datetime import datetime
from itertools import islice

from astrabox_scheduler_crds.cron import CronSchedule


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def text_of(instant: datetime) -> str:
    return instant.strftime("%Y-%m-%dT%H:%MZ")


def due(cron: str, zone: str, start: str, end: str) -> list[str]:
    """Every due time in (start, end]."""
    return [text_of(instant) for instant in CronSchedule.parse(cron, zone).between(at(start), at(end))]


def first(count: int, cron: str, zone: str, start: str) -> list[str]:
    """The first due times after start."""
    schedule, far = CronSchedule.parse(cron, zone), at("9999-01-01T00:00Z")
    return [text_of(instant) for instant in islice(schedule.between(at(start), far), count)]
