"""Typed calls for DeploymentSchedules in one namespace."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic.alias_generators import to_camel

from astrabox_scheduler_client.errors import NotFound
from astrabox_scheduler_client.resource import Listing, Resource
from astrabox_scheduler_client.transport import Transport
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec

Version = tuple[str, int]
"""uid and generation: equal as long as the schedule's spec is the same object's same spec."""

_API: Final = f"/apis/{labels.API_VERSION}"
_OPTIONAL: Final = [
    to_camel(name) for name, field in ScheduleSpec.model_fields.items() if field.default is None
]
_ENABLED: Final = {"fieldSelector": "spec.enabled=true"}
_DELETED: Final = {"labelSelector": labels.DELETED_LABEL, "fieldSelector": "spec.enabled=false"}


class Schedules:
    """DeploymentSchedules of one namespace. Every method raises a member of `errors.ApiError`."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self._resource = Resource(transport, _API, labels.SCHEDULE_PLURAL, namespace, DeploymentSchedule)

    async def get(self, name: str) -> DeploymentSchedule:
        """Read one, consistently. Raises NotFound, MalformedAnswer."""
        return await self._resource.get(name)

    async def list(self) -> Listing[DeploymentSchedule]:
        """All schedules in one consistent state."""
        return await self._resource.list_all()

    async def create(self, schedule: DeploymentSchedule) -> ObjectMeta:
        """Create it (the API server ignores `status`). Raises AlreadyExists, TooLarge, QuotaExceeded."""
        return await self._resource.create(schedule)

    async def update(self, schedule: DeploymentSchedule) -> ObjectMeta:
        """Write its spec, labels and annotations; what others own stays (finalizers, fields of a newer CRD).

        The label of a deleted one goes unless it is among them.
        Raises NotFound, and Conflict on another resource version.
        """
        metadata, spec = schedule.metadata, schedule.spec
        patch = {
            "metadata": {
                "labels": {labels.DELETED_LABEL: None, **metadata.labels},
                "annotations": dict(metadata.annotations),
            },
            "spec": dict.fromkeys(_OPTIONAL) | spec.to_dict(),
        }
        return await self._resource.patch(metadata.name, patch, metadata.resource_version)

    async def patch_status(
        self, name: str, status: Mapping[str, Any], resource_version: str | None = None
    ) -> ObjectMeta:
        """Merge JSON values into the status, None removes one. Raises Conflict if a given version is old."""
        return await self._resource.patch(name, {"status": status}, resource_version, "status")

    async def delete(self, name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        """Delete it. Raises NotFound, and Conflict if it is another one or has changed."""
        await self._resource.delete(name, uid, resource_version)

    async def list_deleted(self) -> Sequence[DeploymentSchedule]:
        """Those that bear the label of a deleted one and are disabled, consistently."""
        return (await self._resource.list_all(_DELETED)).items

    async def enabled_versions(self) -> dict[str, Version]:
        """Every enabled schedule by name, read consistently, in one call and without the payloads."""
        # One unpaged call: a page after the first may be answered from an older state than its own begin.
        found = await self._resource.list_metadata(
            lambda meta: (meta.name, _version(meta)), _ENABLED, limit=0
        )
        return dict(found)

    async def uids(self) -> frozenset[str | None]:
        """Of every schedule, disabled ones too, read consistently and without the payloads."""
        return frozenset(await self._resource.list_metadata(lambda meta: meta.uid, limit=0))

    async def version(self, name: str) -> Version | None:
        """The same of one schedule; None while it is absent or disabled."""
        one = {"fieldSelector": f"metadata.name={name},{_ENABLED['fieldSelector']}"}
        found = await self._resource.list_metadata(_version, one, limit=0)
        return found[0] if found else None

    async def stored_version(self, name: str) -> Version | None:
        """The same by a read of the whole object, in which the API server's cache has no part."""
        try:
            schedule = await self.get(name)
        except NotFound:
            return None
        return _version(schedule.metadata) if schedule.spec.enabled else None


def _version(metadata: ObjectMeta) -> Version:
    return metadata.uid or "", metadata.generation or 0
