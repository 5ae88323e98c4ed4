"""Due times that get no run: settled, counted and logged in one way."""

import logging
from dataclasses import dataclass
from datetime import datetime

from astrabox_scheduler_crds.firing import SkipReason
from astrabox_scheduler_operator.attendance import Attendance
from astrabox_scheduler_operator.entry import Entry
from astrabox_scheduler_operator.index import ScheduleIndex
from astrabox_scheduler_operator.metrics import Metrics

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Skips:
    """Notes skips in the entry, whence they reach the status; an Event tells of them when the gap is over."""

    index: ScheduleIndex
    attendance: Attendance
    metrics: Metrics

    def one(self, entry: Entry, due: datetime, reason: SkipReason, now: datetime) -> None:
        """`due` gets no run."""
        self.span(entry, (due, due, 1), reason, now)

    def span(
        self, entry: Entry, span: tuple[datetime, datetime, int], reason: SkipReason, now: datetime
    ) -> None:
        """So many due times, with the first and the last of them, get no run."""
        first, last, count = span
        begins = entry.settle_skipped(first, last, count, reason)
        self.metrics.skipped.labels(reason.value).inc(count)
        _LOG.log(
            logging.WARNING if begins else logging.INFO,
            "skipped",
            extra={
                "schedule": entry.name,
                "generation": entry.metadata.generation,
                "due": last.isoformat(),
                "first": first.isoformat(),
                "count": count,
                "reason": reason.value,
                "now": now.isoformat(),
                "identity": self.attendance.identity,
            },
        )
        self.index.touch(entry.name)
