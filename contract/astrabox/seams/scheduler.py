"""The scheduler seam: what AstraBox asks of a scheduler provider.

A *Deployment* of AstraBox is an agent and a prompt that run by a time rule. The Deployment record
is AstraBox's and is always the desired state; the provider fires at every due time, keeps one
durable run record per due time, calls AstraBox back until the run has succeeded or failed for good,
and keeps the ledger of runs.

A provider guarantees:

* **Due times.** Five-field cron in an IANA zone. What falls due while no AstraBox process runs, or
  while the Schedule is disabled, is skipped: not made up for, and not merged into a later run.
  Every other due time fires and is a run of its own, also when the run before it has not ended.
* **Once only.** One Deployment and one due time give one run record over all replicas, by a
  uniqueness constraint of the provider's store, never by reading first and writing then.
* **Dispatch.** ``start_session``, save the Session id, ``admit_turn``, save the turn. Either call
  may be repeated with the same invocation. Failures are retried with bounded backoff.
* **Recovery.** A run cut off by a lost process goes on under its run id and its saved Session id.
* **Disable.** Once ``apply`` of a disabled Schedule or ``delete`` has returned, no scheduled run
  starts later than ``pause_visibility_seconds``. Runs already started go on.
* **Run now and replay.** ``enqueue`` returns once the record is saved, and changes no time rule.
* **History.** ``list_runs`` gives the runs of every trigger, newest first, also after ``delete``.
* **Payload.** Stored as given with every run, and handed back equal, value for value, on every
  call. Editing a Schedule rewrites no run that exists.
* **Errors.** Only the errors below, without the engine's own words; the cause is chained.
* **Life cycle.** ``configure``, ``start``, ``reconcile``, then ``apply`` and ``delete``, ``stop``.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Literal, Protocol

ENTRY_POINT_GROUP: Final = "astrabox.providers.scheduler"
"""Entry point group in which a distribution declares its provider class."""

SEAMS_API_VERSION: Final = 1
"""Version of this seam; a provider may declare the one it was written for."""

Trigger = Literal["schedule", "manual", "replay"]
RunStatus = Literal["queued", "running", "completed", "failed", "cancelled"]


class SchedulerError(Exception):
    """Base of what a provider raises; the text may be shown to a user of the API."""


class SchedulerUnavailable(SchedulerError):  # noqa: N818 - the contract's name
    """The store or the engine cannot be reached or has failed; the same call may work later."""


class InvalidSchedule(SchedulerError):  # noqa: N818 - the contract's name
    """The engine refuses the cron expression or the zone."""


class ScheduleCapacityExceeded(SchedulerError):  # noqa: N818 - the contract's name
    """A limit of the engine is used up."""


class SchedulerConfigurationError(SchedulerError):
    """The provider cannot run in this deployment; says to an operator what is missing and what to do."""


class RunPermanentError(Exception):
    """Raised by a `RunHandler`: repeating this run is of no use, mark it failed."""


@dataclass(frozen=True, slots=True)
class SchedulerProperties:
    """In what engines differ; AstraBox logs it at start-up.

    ``recovery_scope``: ``"cluster"`` if any replica takes over the runs of a lost process,
    ``"executor"`` if only a process restarted under the same identity does.
    ``max_active_schedules``: how many enabled Schedules the engine carries, None for no limit.
    ``pause_visibility_seconds``: how long a Schedule may still fire once it is disabled.
    """

    recovery_scope: Literal["cluster", "executor"]
    max_active_schedules: int | None
    pause_visibility_seconds: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """Desired state of one Deployment's time rule; ``payload`` is any JSON object."""

    deployment_id: str
    cron: str
    timezone: str
    enabled: bool
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunInvocation:
    """What both handler calls of a run get, the same on every repeat.

    ``scheduled_for`` is the due time, aware and in UTC; None unless the trigger is ``"schedule"``.
    """

    run_id: str
    deployment_id: str
    trigger: Trigger
    scheduled_for: datetime | None
    payload: Mapping[str, Any]
    replayed_from_run_id: str | None


@dataclass(frozen=True, slots=True)
class AdmittedTurn:
    """The turn that AstraBox has admitted to a Session."""

    turn_id: str
    command_id: str | None


@dataclass(frozen=True, slots=True)
class ScheduledRun:
    """A row of the ledger; ``status`` is that of the dispatch, not the Session's. Datetimes are aware UTC."""

    run_id: str
    deployment_id: str
    trigger: Trigger
    status: RunStatus
    scheduled_for: datetime | None
    payload: Mapping[str, Any]
    session_id: str | None
    turn_id: str | None
    error: str | None
    created_at: datetime
    replayed_from_run_id: str | None


class RunHandler(Protocol):
    """AstraBox's side of a run. Both calls are idempotent by run id and may take minutes.

    They raise `RunPermanentError` if repeating is of no use; anything else is worth a retry.
    """

    async def start_session(self, invocation: RunInvocation) -> str:
        """Start the run's Session, or find the one started before, and return its id."""

    async def admit_turn(self, invocation: RunInvocation, session_id: str) -> AdmittedTurn:
        """Admit the run's turn to the Session; ``session_id`` has been saved before this call."""


class SchedulerProvider(ABC):
    """A scheduler provider; AstraBox makes one instance per process, without arguments.

    ``name`` equals the entry point's name. ``seams_api_version`` is the `SEAMS_API_VERSION` that
    the provider was written for; None leaves it unchecked.
    """

    name: ClassVar[str]
    seams_api_version: ClassVar[int | None] = None

    @property
    @abstractmethod
    def properties(self) -> SchedulerProperties:
        """The engine's properties; known once `configure` has returned."""

    @abstractmethod
    def configure(self, *, repository_backend: Any) -> None:
        """Take AstraBox's database backend; the first call, also made inside a running event loop.

        Raises `SchedulerConfigurationError` if the provider cannot run in this deployment.
        """

    @abstractmethod
    async def start(self, handler: RunHandler) -> None:
        """Begin to dispatch, and go on with the runs that lost processes have left."""

    @abstractmethod
    async def stop(self) -> None:
        """Drain within a bound, while AstraBox still serves; a second call does nothing.

        What is in flight is finished or handed over; no handler call is made after the return.
        """

    @abstractmethod
    async def reconcile(self, schedules: Sequence[Schedule]) -> None:
        """Make the stored Schedules equal to all of AstraBox's; follows `start`."""

    @abstractmethod
    async def apply(self, schedule: Schedule) -> None:
        """Create or change one Schedule; after an error the old state still holds.

        Raises `InvalidSchedule`, `ScheduleCapacityExceeded` or `SchedulerUnavailable`.
        """

    @abstractmethod
    async def delete(self, deployment_id: str) -> None:
        """Remove one Schedule, or do nothing if there is none; its runs stay in the history."""

    @abstractmethod
    async def enqueue(
        self,
        deployment_id: str,
        payload: Mapping[str, Any],
        *,
        trigger: Literal["manual", "replay"],
        replayed_from_run_id: str | None = None,
    ) -> ScheduledRun:
        """Save a run outside the time rule and return it; it is dispatched after that.

        A replay names the run it repeats and carries that run's payload.
        """

    @abstractmethod
    async def list_runs(self, deployment_id: str, *, limit: int = 50) -> list[ScheduledRun]:
        """Return one Deployment's runs, newest first; ``limit`` is clamped to 1..200."""
