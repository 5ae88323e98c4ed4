"""The Lease by which a process shows that it is there (`coordination.k8s.io/v1`)."""

from typing import Literal

from pydantic import Field

from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.metadata import KubernetesModel, MicroTime, ObjectMeta

Role = Literal["provider", "operator"]
LEASE_DURATION_SECONDS = 15
RENEW_PERIOD_SECONDS = 5


class LeaseSpec(KubernetesModel):
    """`holder_identity` is absent once the process has ended in order."""

    holder_identity: str | None = None
    lease_duration_seconds: int = LEASE_DURATION_SECONDS
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None


class Lease(KubernetesModel):
    """One object per process and life; from acquire_time to renew_time it was surely there."""

    api_version: Literal["coordination.k8s.io/v1"] = "coordination.k8s.io/v1"
    kind: Literal["Lease"] = "Lease"
    metadata: ObjectMeta
    spec: LeaseSpec = Field(default_factory=LeaseSpec)

    @property
    def role(self) -> str | None:
        """`provider`, `operator`, or None for a Lease that is not ours."""
        return self.metadata.labels.get(labels.ROLE_LABEL)

    @property
    def draining(self) -> bool:
        """True while its process stops: it is there, and takes nothing more."""
        return labels.DRAINING_LABEL in self.metadata.labels

    @property
    def released(self) -> bool:
        """True when its process ended in order and said so."""
        return not self.spec.holder_identity
