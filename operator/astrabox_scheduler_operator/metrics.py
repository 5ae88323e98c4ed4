"""What Prometheus may ask for. No label holds a Deployment's id or anything of a payload.

Every counter is there from the start, with each of its usual labels: Prometheus' `increase()` does not see
the first value of a series. What is counted before the first scrape shows by the time of the start.
"""

import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from astrabox_scheduler_client.errors import ApiError
from astrabox_scheduler_crds.cron import tzdata_version
from astrabox_scheduler_crds.firing import SkipReason

API_ERRORS: Final = (
    "Conflict",
    "Cut",
    "Forbidden",
    "InternalError",
    "Invalid",
    "NotFound",
    "NotSent",
    "NotServed",
    "RequestEntityTooLarge",
    "ServerError",
    "ServerTimeout",
    "ServiceUnavailable",
    "Timeout",
    "TooManyRequests",
    "Unauthorized",
)
"""Kubernetes' and the client's words for what usually refuses a write; others may come."""
_LATENESS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)

_PREFIX: Final = "astrabox_scheduler_operator"


class Metrics:
    """All metrics of one operator, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.fired = self._counter("fired", "Due times that have their run by this operator.")
        self.skipped = self._counter("skipped", "Due times of enabled schedules without a run.", "reason")
        told = "Creates of runs, and reads to confirm them, that failed."
        self.create_errors = self._counter("create_errors", told, "reason")
        self.watch_stale = self._counter("watch_stale", "Changes that the watch missed and a sweep found.")
        self.confirm_reads = self._counter("confirm_reads", "Reads that confirmed schedules before a burst.")
        told = "How often this operator left its share to the others, because nothing got through."
        self.step_downs = self._counter("step_downs", told)
        self.status_writes = self._counter("status_writes", "Writes of a schedule's status.")
        told = "Writes of a schedule's status that failed."
        self.status_errors = self._counter("status_errors", told, "reason")
        self.runs_deleted = self._counter("runs_deleted", "Finished runs beyond the history limit.")
        told = "Runs cancelled because no AstraBox process was there."
        self.runs_cancelled = self._counter("runs_cancelled", told)
        self.lateness = Histogram(
            f"{_PREFIX}_firing_lateness_seconds",
            "From the due time to the created run.",
            buckets=_LATENESS,
            registry=self.registry,
        )
        told = "Schedules: active, disabled, refused (they cannot fire), failing, deleted (kept for a while)."
        self.schedules = self._gauge("schedules", told, "state")
        self.clock_skew = self._gauge(
            "clock_skew_seconds", "What the local clock is ahead of the API server's."
        )
        for skipped in SkipReason:
            self.skipped.labels(skipped.value)
        for refused in API_ERRORS:
            self.create_errors.labels(refused)
            self.status_errors.labels(refused)
        told = "When this process started, in seconds since 1970."
        self._gauge("start_time_seconds", told).set(time.time())
        data = Info(f"{_PREFIX}_tzdata", "Time zone data in use.", registry=self.registry)
        data.info({"version": tzdata_version()})

    def failed(self, error: ApiError) -> None:
        """Count a create, or the read that was to confirm it."""
        self.create_errors.labels(error.reason or type(error).__name__).inc()

    def status_failed(self, error: ApiError) -> None:
        """Count a write of a status."""
        self.status_errors.labels(error.reason or type(error).__name__).inc()

    def text(self) -> bytes:
        """The exposition in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, told: str, *marks: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", told, marks, registry=self.registry)

    def _gauge(self, name: str, told: str, *marks: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", told, marks, registry=self.registry)
