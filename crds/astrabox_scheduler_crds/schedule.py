"""DeploymentSchedule: the desired time rule of one AstraBox Deployment, and what became of it."""

import hashlib
from typing import Annotated, Literal

from pydantic import Field

from astrabox_scheduler_crds.metadata import Condition, KubernetesModel, ObjectMeta, UtcTime

MAX_DEPLOYMENT_ID_LENGTH = 1024
MAX_PAYLOAD_LENGTH = 1_000_000
"""In bytes of UTF-8. A request to the API server's store has 1.5 MiB; the rest is for all other fields."""

MAX_EARLIER_RULES = 64
"""More than can be needed: each holds a due time of its own within the longest catch-up window of an hour."""

DeploymentId = Annotated[str, Field(max_length=MAX_DEPLOYMENT_ID_LENGTH)]
PayloadText = Annotated[str, Field(max_length=MAX_PAYLOAD_LENGTH)]
CronText = Annotated[str, Field(max_length=256)]
ZoneText = Annotated[str, Field(max_length=64)]


class EarlierRule(KubernetesModel):
    """A time rule that was replaced a short while ago; its due times are still to be settled."""

    cron: CronText = Field(description="The expression that was replaced.")
    time_zone: ZoneText = Field(description="Its IANA zone.")
    active_since: UtcTime = Field(description="Its due times are later than this.")
    active_until: UtcTime = Field(description="Its due times are not later than this.")
    disabled: bool = Field(
        default=False, description="The schedule was disabled since: what has not fired by then never fires."
    )
    disabled_at: UtcTime | None = Field(
        default=None, description="When AstraBox disabled it; absent if it is not disabled, or nobody knows."
    )


class ScheduleSpec(KubernetesModel):
    """What AstraBox asked for."""

    deployment_id: DeploymentId = Field(description="Id of the AstraBox Deployment, as AstraBox wrote it.")
    cron: CronText = Field(description="Five fields: minute, hour, day of month, month, day of week.")
    time_zone: ZoneText = Field(description="IANA zone of the cron expression, for example Europe/Berlin.")
    enabled: bool = Field(default=True, description="False: nothing is due until it is true again.")
    payload: PayloadText = Field(description="Target and prompt, the JSON text that AstraBox gave.")
    active_since: UtcTime | None = Field(
        default=None,
        description="Only later times are due: set on create, enable, disable, and change of cron or zone. "
        "Leave it out when you write by hand.",
    )
    earlier_rules: Annotated[tuple[EarlierRule, ...], Field(max_length=MAX_EARLIER_RULES)] | None = Field(
        default=None,
        description="Time rules that AstraBox replaced within the last hour and that may have due times "
        "which have not fired yet. Leave it out when you write by hand.",
    )

    @property
    def earlier(self) -> tuple[EarlierRule, ...]:
        """The earlier rules, none where the field is absent."""
        return self.earlier_rules or ()

    @property
    def time_rule(self) -> str:
        """A short fingerprint of what decides due times; equal for an edit of the payload alone."""
        since = self.active_since.isoformat() if self.active_since else ""
        text = "\0".join((self.cron, self.time_zone, str(self.enabled), since))
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


class Skipped(KubernetesModel):
    """Due times that were told as skipped; while a schedule is disabled it has none."""

    count: int = Field(
        default=0,
        description="How many, over the schedule's life; a long gap counts up to 1000. One that fires "
        "late after all stays counted.",
    )
    last_due_time: UtcTime | None = Field(default=None, description="The latest of them.")
    reason: str = Field(
        default="", max_length=64, description="Why the latest was skipped, as far as was known then."
    )
    unproven_since: UtcTime | None = Field(
        default=None,
        description="Those from here on were skipped because nobody was there, as far as anybody could know: "
        "they fire late if a process shows within the catch-up window that it was.",
    )


class ScheduleStatus(KubernetesModel):
    """What the operator saw and did; of fixed size whatever the number of runs."""

    observed_generation: int | None = Field(
        default=None, description="The generation of the spec that the rest of this status is about."
    )
    last_due_time: UtcTime | None = Field(default=None, description="The latest due time that has its run.")
    last_run: str | None = Field(default=None, max_length=253, description="Name of that run.")
    next_due_time: UtcTime | None = Field(default=None, description="In UTC; absent while disabled.")
    active_since: UtcTime | None = Field(default=None, description="Only later times are due.")
    time_rule: str | None = Field(
        default=None, max_length=16, description="Fingerprint of the observed time rule."
    )
    skipped: Skipped | None = None
    conditions: tuple[Condition, ...] = Field(
        default=(), description="Ready: it can fire, or it is disabled in order. Suspended: it is disabled."
    )


class DeploymentSchedule(KubernetesModel):
    """The time rule of one AstraBox Deployment, whose id is its name, or is in it; and what became of it."""

    api_version: Literal["scheduler.astrabox.io/v1"] = "scheduler.astrabox.io/v1"
    kind: Literal["DeploymentSchedule"] = "DeploymentSchedule"
    metadata: ObjectMeta
    spec: ScheduleSpec
    status: ScheduleStatus = ScheduleStatus()
