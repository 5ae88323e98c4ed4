"""What a fault run leaves behind: facts only, from the API server's audit log and the hosts' records.

All times are seconds since the epoch by the clock of the test machine, whatever clock the process that
they tell of believed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Object = Mapping[str, Any]
"""An object of the API server, as its JSON."""
Role = Literal["host", "operator"]
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Life:
    """One operating-system process from start to end. A name that is started again has another life."""

    name: str
    role: Role
    pid: int
    begun: float
    ready: float | None
    """Host: its provider has started and reconciled; operator: /readyz has answered 200. None: never."""
    ended: float | None = None
    """None: it was there when the history was collected."""
    code: int | None = None
    """Exit code; negative for a signal."""
    asked_to_end: float | None = None
    """When SIGTERM (or the command `stop`) was sent to it."""
    frozen: tuple[Span, ...] = ()
    """From SIGSTOP to SIGCONT."""
    hindered: tuple[Span, ...] = ()
    """When its requests were cut, swallowed, slowed, refused or unauthorized, or its clock was moved."""


@dataclass(frozen=True, slots=True)
class Outage:
    """The API server or etcd was away or faulty for everybody; `ended` is when it answered again."""

    what: str
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Command:
    """What AstraBox (the test) asked a host for, and the answer."""

    host: str
    op: Literal["apply", "delete", "reconcile", "enqueue"]
    sent: float
    returned: float | None
    """None: the host went away before it answered, so that nobody knows."""
    error: str | None = None
    """`Type: text` of the error that was answered; None with `returned` set: it was done."""
    deployment_id: str | None = None
    schedule: Mapping[str, Any] | None = None
    """apply: cron, timezone, enabled, payload."""
    given: tuple[Mapping[str, Any], ...] = ()
    """reconcile: the schedules of the list that was handed over, with deployment_id."""
    payload: Any = None
    """enqueue: what was given."""
    trigger: str | None = None
    replayed_from: str | None = None
    run_id: str | None = None
    """enqueue: the run of the answer."""

    @property
    def done(self) -> bool:
        """Whether it is known to have succeeded."""
        return self.returned is not None and self.error is None

    @property
    def rejected(self) -> bool:
        """Whether the answer was that this cannot be: then it has changed nothing."""
        return (self.error or "").startswith(("InvalidSchedule", "ScheduleCapacityExceeded"))

    @property
    def unavailable(self) -> bool:
        """Whether the answer was a fault of the store: then it may be stored, and undone later."""
        return (self.error or "").startswith("SchedulerUnavailable")


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the run handler in a host."""

    host: str
    pid: int
    step: Literal["start_session", "admit_turn"]
    run_id: str
    deployment_id: str
    trigger: str
    scheduled_for: str | None
    replayed_from: str | None
    session_id: str | None
    """admit_turn: the Session that was handed over."""
    payload: Any
    begun: float
    ended: float | None
    """None: the process did not live to see it."""
    error: str | None = None
    """`Type: text` if it raised (CancelledError included)."""
    result: str | None = None
    """The Session id or turn id that it returned."""


@dataclass(frozen=True, slots=True)
class Write:
    """One audited request that may change an object: create, update, patch, delete."""

    received: float
    completed: float | None
    """None: the API server did not live to tell what became of it."""
    code: int | None
    by: str
    """Name of the process (each has a service account of its own), or `admin`."""
    verb: str
    resource: str
    """Plural: runinvocations, deploymentschedules, leases, events."""
    name: str
    subresource: str = ""
    after: Object | None = None
    """The object in the answer, if it succeeded and was told."""

    @property
    def succeeded(self) -> bool:
        """Whether the API server said so."""
        return self.code is not None and 200 <= self.code < 300


@dataclass(frozen=True, slots=True)
class Bounds:
    """The settings that decide what is late, in seconds."""

    catch_up_window: float = 600.0
    lease_duration: float = 15.0
    renew_period: float = 5.0
    pause_visibility: float = 5.0
    stop_within: float = 32.0
    max_attempts: int = 8
    retry_first_delay: float = 2.0
    retry_max_delay: float = 300.0
    handler_timeout: float = 900.0
    history_limit: int = 200
    retry_factor: float = 3.0
    """By so much each pause is longer than the one before, up to the longest."""


@dataclass(frozen=True)
class History:
    """Everything the checker may use."""

    begun: float
    ended: float
    """When everything had come to rest and the objects were read."""
    lives: Sequence[Life]
    commands: Sequence[Command]
    calls: Sequence[Call]
    writes: Sequence[Write]
    runs: Mapping[str, Object]
    """RunInvocations at the end, by name."""
    schedules: Mapping[str, Object]
    """DeploymentSchedules at the end, by name."""
    outages: Sequence[Outage] = ()
    ledgers: Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]] | None = None
    """What list_runs answered at the end: host -> deployment id -> rows."""
    notes: Sequence[tuple[float, str]] = ()
    """What the test did, for the timeline."""
    bounds: Bounds = Bounds()


@dataclass(frozen=True, slots=True)
class Violation:
    """A guarantee that did not hold."""

    guarantee: str
    """G1 to G10."""
    what: str
    """One sentence with the figures."""
    run_id: str | None = None
    deployment_id: str | None = None
