"""RunInvocation: one run, at the same time the record, the lock and the ledger's row."""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, WithJsonSchema, field_validator

from astrabox_scheduler_crds.metadata import MAX_ERROR_LENGTH, Condition, KubernetesModel, ObjectMeta, UtcTime
from astrabox_scheduler_crds.schedule import DeploymentId, PayloadText

Trigger = Literal["schedule", "manual", "replay"]


class Phase(StrEnum):
    """Dispatch state of a run. New members may be added by a later version, none is ever taken away."""

    QUEUED = "Queued"
    RUNNING = "Running"
    RETRYING = "Retrying"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


_PHASES = frozenset(phase.value for phase in Phase)
FINISHED = frozenset({Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED})


class Origin(KubernetesModel):
    """Who created a run and on what grounds, so that "why did it run then?" has an answer."""

    identity: str = Field(
        max_length=253, description="Lease name of the operator or provider that created it."
    )
    at: UtcTime = Field(description="When, by the creator's clock.")
    confirmed_at: UtcTime | None = Field(
        default=None, description="When the read began that showed the schedule enabled."
    )
    schedule_uid: str | None = Field(default=None, max_length=64, description="The schedule that was due.")
    schedule_generation: int | None = Field(default=None, description="The state of its spec.")


class RunSpec(KubernetesModel):
    """What is run; immutable from the moment it is created."""

    deployment_id: DeploymentId = Field(description="Id of the AstraBox Deployment.")
    trigger: Trigger = Field(default="manual", description="What made it run.")
    due_time: UtcTime | None = Field(
        default=None, description="The due time in UTC; only for trigger schedule."
    )
    payload: PayloadText = Field(description="Target and prompt as they were when the run was created.")
    replayed_from: str | None = Field(
        default=None,
        max_length=253,
        description="Name of the run that this one repeats; only for trigger replay.",
    )
    created_by: Origin | None = None


class RunStatus(KubernetesModel):
    """What became of it; nothing here goes backwards."""

    # Changed only through `transitions`.

    phase: Annotated[
        Phase | str,
        WithJsonSchema(
            {"type": "string", "enum": [phase.value for phase in Phase], "default": Phase.QUEUED.value}
        ),
    ] = Field(default=Phase.QUEUED, description="Dispatch state.")
    attempts: int = Field(default=0, description="Attempts that were started, the one in progress included.")
    releases: int = Field(
        default=0, description="Attempts handed over by an orderly stop; they do not use up retries."
    )
    failures: int = Field(default=0, description="Attempts that ended with an error of AstraBox.")
    assignee: str | None = Field(default=None, max_length=253, description="Who made the latest attempt.")
    session_id: str | None = Field(default=None, max_length=1024, description="AstraBox Session; set once.")
    turn_id: str | None = Field(default=None, max_length=1024, description="AstraBox turn; set once.")
    command_id: str | None = Field(default=None, max_length=1024, description="AstraBox command; set once.")
    started_at: UtcTime | None = Field(default=None, description="Start of the first attempt.")
    finished_at: UtcTime | None = Field(default=None, description="When the phase became a final one.")
    next_attempt_time: UtcTime | None = Field(
        default=None, description="Not before this time; while Retrying."
    )
    last_error: str | None = Field(
        default=None, max_length=MAX_ERROR_LENGTH, description="Why the latest attempt failed, or the end."
    )
    conditions: tuple[Condition, ...] = Field(
        default=(), description="Finished, Succeeded and Failed; absent until it has ended."
    )

    @field_validator("phase")
    @classmethod
    def _known_or_text(cls, value: str) -> Phase | str:
        return Phase(value) if value in _PHASES else value

    @property
    def finished(self) -> bool:
        """True in a phase that never changes again."""
        return self.phase in FINISHED

    @property
    def losses(self) -> int:
        """Attempts that lost their process: they neither failed nor were released. One in progress counts."""
        return self.attempts - self.releases - self.failures

    @property
    def started(self) -> bool:
        """True once AstraBox may have been called: the run then goes on whatever becomes of its schedule.

        Not yet after attempts that were all handed over before their first call (`transitions.with_release`).
        """
        if self.session_id is not None:
            return True
        return self.attempts > (self.releases if self.phase == Phase.RETRYING else 0)


class RunInvocation(KubernetesModel):
    """One run of an AstraBox Deployment; its name is the run id."""

    api_version: Literal["scheduler.astrabox.io/v1"] = "scheduler.astrabox.io/v1"
    kind: Literal["RunInvocation"] = "RunInvocation"
    metadata: ObjectMeta
    spec: RunSpec
    status: RunStatus = RunStatus()
