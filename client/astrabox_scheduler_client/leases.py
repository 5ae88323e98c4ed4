"""Typed calls for Leases (`coordination.k8s.io/v1`) in one namespace."""

from typing import Final

from astrabox_scheduler_client.resource import Resource
from astrabox_scheduler_client.transport import Transport
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.lease import Lease
from astrabox_scheduler_crds.metadata import ObjectMeta

_API: Final = "/apis/coordination.k8s.io/v1"


class Leases:
    """Leases of one namespace. Every method raises a member of `errors.ApiError`."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self._resource = Resource(transport, _API, "leases", namespace, Lease)

    async def get(self, name: str) -> Lease:
        """Read one, consistently. Raises NotFound."""
        return await self._resource.get(name)

    async def list(self, label_selector: str = labels.ROLE_LABEL) -> list[Lease]:
        """All that match, consistently; as given, every Lease of ours (those with a role)."""
        return (await self._resource.list_all({"labelSelector": label_selector})).items

    async def create(self, lease: Lease) -> ObjectMeta:
        """Create it. Raises AlreadyExists."""
        return await self._resource.create(lease)

    async def replace(self, lease: Lease) -> ObjectMeta:
        """Replace it. Raises NotFound, and Conflict if its resource version is not `lease`'s."""
        return await self._resource.replace(lease.metadata.name, lease)

    async def delete(self, name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        """Delete it. Raises NotFound, and Conflict if it is another one or has changed."""
        await self._resource.delete(name, uid, resource_version)
