"""What must be there before anything starts: our CRDs, as new as we are, and our rights."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol

from astrabox_scheduler_client.errors import ApiError
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.crd import field_paths, run_crd, schedule_crd
from astrabox_scheduler_crds.permissions import OPERATOR_PERMISSIONS, Permission

POLL_SECONDS: Final = 3.0
_KINDS: Final = ((labels.SCHEDULE_KIND, schedule_crd), (labels.RUN_KIND, run_crd))
_TO_DO: Final = "install the Helm chart, or apply crds/manifests"
_LOG = logging.getLogger(__name__)


class Schemas(Protocol):
    """What the API server publishes."""

    async def published_schema(self) -> Mapping[str, Any] | None:
        """The OpenAPI document of our group. Raises ApiError."""
        ...


class Rights(Protocol):
    """What the API server lets us do."""

    async def denied(self, permissions: tuple[Permission, ...]) -> list[Permission]:
        """The permissions that we lack. Raises ApiError."""
        ...


class Preflight:
    """`missing` says what is missing and what to do; None when nothing is."""

    def __init__(self, schemas: Schemas, rights: Rights, namespace: str) -> None:
        self._schemas = schemas
        self._rights = rights
        self._namespace = namespace
        self.passed = False
        self.waiting_for: str | None = "the first look at the API server"

    async def wait(self, poll_seconds: float = POLL_SECONDS) -> None:
        """Return when nothing is missing; each thing that is gets one log line."""
        said = None
        while (missing := await self._look()) is not None:
            if missing != said:
                _LOG.warning("waiting: %s", missing)
            said = self.waiting_for = missing
            await asyncio.sleep(poll_seconds)
        self.passed, self.waiting_for = True, None
        _LOG.info("CRDs and permissions are as they should be", extra={"namespace": self._namespace})

    async def missing(self) -> str | None:
        """One sentence, or None. Raises ApiError."""
        return missing_fields(await self._schemas.published_schema()) or self._lacking(
            await self._rights.denied(OPERATOR_PERMISSIONS)
        )

    async def _look(self) -> str | None:
        try:
            return await self.missing()
        except ApiError as error:
            return f"the API server does not answer as it should: {error}"

    def _lacking(self, denied: list[Permission]) -> str | None:
        if not denied:
            return None
        told = ", ".join(str(each) for each in denied)
        return (
            f"permissions in namespace {self._namespace} are missing: {told}. "
            "Bind the operator's Role of the Helm chart to its service account"
        )


def missing_fields(document: Mapping[str, Any] | None) -> str | None:
    """What the published schema lacks of ours, None if nothing."""
    if document is None:
        return f"the CRDs of {labels.API_VERSION} are not installed: {_TO_DO}"
    for kind, definition in _KINDS:
        published = _schema_of(document, kind)
        if published is None:
            return f"the CRD of {kind} is not installed: {_TO_DO}"
        (version,) = definition()["spec"]["versions"]
        wanted = set(field_paths(version["schema"]["openAPIV3Schema"]))
        lacking = sorted(wanted - set(field_paths(published)))
        if lacking:
            return f"the CRD of {kind} is too old, it lacks {', '.join(lacking)}: upgrade the CRDs"
    return None


def _schema_of(document: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    schemas: Mapping[str, Any] = document.get("components", {}).get("schemas", {})
    for schema in schemas.values():
        for mark in schema.get("x-kubernetes-group-version-kind", ()):
            if (mark.get("group"), mark.get("version"), mark.get("kind")) == (
                labels.GROUP,
                labels.VERSION,
                kind,
            ):
                found: Mapping[str, Any] = schema
                return found
    return None
