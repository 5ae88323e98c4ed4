"""Typed calls for RunInvocations in one namespace."""

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Final

from astrabox_scheduler_client.resource import Listing, Resource, whole
from astrabox_scheduler_client.transport import Transport
from astrabox_scheduler_client.watch import RunEvent, event_of
from astrabox_scheduler_crds import labels as names
from astrabox_scheduler_crds.metadata import ObjectMeta, ObjectRef
from astrabox_scheduler_crds.run import FINISHED, RunInvocation

_API: Final = f"/apis/{names.API_VERSION}"
_UNFINISHED: Final = ",".join(f"status.phase!={phase}" for phase in sorted(FINISHED))
_PAGE_WITH_PAYLOADS: Final = 50
"""A payload has up to a megabyte."""
_ONE_PAGE: Final = 0
"""For a few among many: API servers before 1.34 look for a page of these in etcd, among all that is there."""
WATCH_IDLE_SECONDS: Final = 90.0
"""The API server sends a bookmark about once a minute: longer silence is a dead connection."""


class Runs:
    """RunInvocations of one namespace. Every method raises a member of `errors.ApiError`."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self._transport = transport
        self._resource = Resource(transport, _API, names.RUN_PLURAL, namespace, RunInvocation)

    async def create(self, run: RunInvocation) -> ObjectMeta:
        """Create it; only metadata comes back. Raises AlreadyExists, TooLarge, QuotaExceeded.

        After an error with `ambiguous` it may be there all the same; repeating it then raises AlreadyExists.
        """
        return await self._resource.create(run)

    async def get(self, name: str) -> RunInvocation:
        """Read one, consistently. Raises NotFound."""
        return await self._resource.get(name)

    async def list_for_deployment(self, key: str) -> list[RunInvocation]:
        """All runs of the AstraBox Deployment with this key (`names.deployment_key`), in no order.

        Runs that cannot be read are left out.
        """
        return (await self._resource.list_all(_of_deployment(key), _PAGE_WITH_PAYLOADS)).items

    async def list_metadata_for_deployment(self, key: str) -> list[ObjectMeta]:
        """The same with nothing but metadata."""
        return await self._resource.list_metadata(whole, _of_deployment(key), _ONE_PAGE)

    async def list_assigned(self, assignee: str, *, unfinished: bool = True) -> Listing[RunInvocation]:
        """The runs labelled with this assignee; its resource version is where a `watch` goes on."""
        query = {"labelSelector": assigned_to(assignee)}
        query |= {"fieldSelector": _UNFINISHED} if unfinished else {}
        return await self._resource.list_all(query, _PAGE_WITH_PAYLOADS)

    async def list_refs(self, key: str | None = None) -> list[ObjectRef]:
        """Every run, or those of the AstraBox Deployment with this key."""
        if key is None:
            return await self._resource.list_metadata(reference)
        return await self._resource.list_metadata(reference, _of_deployment(key), _ONE_PAGE)

    async def list_unfinished_metadata(self) -> list[ObjectMeta]:
        """Metadata of every run whose phase may still change."""
        return await self._resource.list_metadata(whole, {"fieldSelector": _UNFINISHED}, _ONE_PAGE)

    async def list_finished_refs(self) -> list[ObjectRef]:
        """Every run in a phase that never changes again."""
        lists = [
            await self._resource.list_metadata(reference, {"fieldSelector": f"status.phase={each}"})
            for each in FINISHED
        ]
        return [run for found in lists for run in found]

    async def patch_labels(
        self, name: str, labels: Mapping[str, str | None], *, resource_version: str | None = None
    ) -> ObjectMeta:
        """Set labels, None removes one. Raises NotFound, and Conflict if a given resource version is old."""
        return await self._resource.patch(name, {"metadata": {"labels": dict(labels)}}, resource_version)

    async def patch_status(
        self, name: str, status: Mapping[str, Any], resource_version: str | None
    ) -> ObjectMeta:
        """Merge JSON values into the status, None removes one. Raises Conflict if the run changed since."""
        return await self._resource.patch(name, {"status": status}, resource_version, "status")

    async def delete(self, name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        """Delete it. Raises NotFound, and Conflict if it is another one or has changed."""
        await self._resource.delete(name, uid, resource_version)

    async def watch(
        self,
        label_selector: str,
        resource_version: str,
        timeout_seconds: int = 240,
        idle_timeout: float = WATCH_IDLE_SECONDS,
    ) -> AsyncGenerator[RunEvent, None]:
        """Changes after `resource_version`, until the server ends it after `timeout_seconds`.

        Raises Gone when that version is too old (list again), Unreachable after `idle_timeout` seconds
        of silence or a cut connection, MalformedAnswer. Iterate it inside `contextlib.aclosing`.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": label_selector,
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
        }
        path = self._resource.path
        async with aclosing(self._transport.stream(path, query, idle_timeout)) as lines:
            async for line in lines:
                yield event_of(line, path)


def assigned_to(assignee: str) -> str:
    """The label selector of runs assigned to a provider (its current Lease name)."""
    return f"{names.ASSIGNEE_LABEL}={assignee}"


def _of_deployment(key: str) -> dict[str, str]:
    return {"labelSelector": f"{names.DEPLOYMENT_LABEL}={key}"}


def reference(meta: ObjectMeta) -> ObjectRef:
    """What is kept of a run's metadata."""
    deployment = sys.intern(meta.labels.get(names.DEPLOYMENT_LABEL, ""))
    return ObjectRef(meta.name, meta.uid, meta.resource_version, meta.creation_timestamp, deployment)
