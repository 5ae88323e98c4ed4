"""What Prometheus may ask for. No label holds a Deployment's id or anything of a payload."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest

from astrabox_scheduler_crds.cron import tzdata_version

_LATENESS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Metrics:
    """All metrics of one operator, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        prefix = "astrabox_scheduler_operator"
        self.fired = Counter(
            f"{prefix}_fired", "Due times that have their run by this operator.", registry=self.registry
        )
        self.skipped = Counter(
            f"{prefix}_skipped",
            "Due times of enabled schedules without a run.",
            ["reason"],
            registry=self.registry,
        )
        self.create_errors = Counter(
            f"{prefix}_create_errors", "Creates of runs that failed.", ["reason"], registry=self.registry
        )
        self.lateness = Histogram(
            f"{prefix}_firing_lateness_seconds",
            "From the due time to the created run.",
            buckets=_LATENESS,
            registry=self.registry,
        )
        self.schedules = Gauge(
            f"{prefix}_schedules",
            "Schedules: active, disabled, refused (they cannot fire), failing.",
            ["state"],
            registry=self.registry,
        )
        self.watch_stale = Counter(
            f"{prefix}_watch_stale",
            "Changes that the watch missed and a sweep found.",
            registry=self.registry,
        )
        self.confirm_reads = Counter(
            f"{prefix}_confirm_reads",
            "Reads that confirmed schedules before a burst.",
            registry=self.registry,
        )
        self.status_writes = Counter(
            f"{prefix}_status_writes", "Writes of a schedule's status.", registry=self.registry
        )
        self.runs_deleted = Counter(
            f"{prefix}_runs_deleted", "Finished runs beyond the history limit.", registry=self.registry
        )
        self.runs_cancelled = Counter(
            f"{prefix}_runs_cancelled",
            "Runs cancelled because no AstraBox process was there.",
            registry=self.registry,
        )
        self.clock_skew = Gauge(
            f"{prefix}_clock_skew_seconds",
            "What the local clock is ahead of the API server's.",
            registry=self.registry,
        )
        Info(f"{prefix}_tzdata", "Time zone data in use.", registry=self.registry).info(
            {"version": tzdata_version()}
        )

    def text(self) -> bytes:
        """The exposition in Prometheus' text format."""
        return generate_latest(self.registry)
