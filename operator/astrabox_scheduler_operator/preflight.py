"""What must be there before anything starts: our CRDs, as new as we are, and our rights."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol

from astrabox_scheduler_client.errors import AccessDenied, ApiError, NotServed, advice
from astrabox_scheduler_crds.crd import APPLY_DEFINITIONS, lacking_fields
from astrabox_scheduler_crds.permissions import OPERATOR_PERMISSIONS, Permission

POLL_SECONDS: Final = 3.0
_GIVE_RIGHTS: Final = (
    "upgrade the chart to this release with rbac.create=true; or bind the service account to the Role for "
    "the operator of the chart or of deploy/rbac.yaml"
)
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
    """`missing` says what is missing and what to do; None when nothing is.

    `waiting_for` is the same of the latest look of `wait`, None once it has returned.
    """

    def __init__(self, schemas: Schemas, rights: Rights, namespace: str) -> None:
        self._schemas = schemas
        self._rights = rights
        self._namespace = namespace
        self.waiting_for: str | None = "the first look at the API server"

    async def wait(self, poll_seconds: float = POLL_SECONDS) -> None:
        """Return when nothing is missing; each thing that is gets one log line."""
        said = None
        while (missing := await self._look()) is not None:
            if missing != said:
                _LOG.warning("waiting: %s", missing)
            said = self.waiting_for = missing
            await asyncio.sleep(poll_seconds)
        self.waiting_for = None
        _LOG.info("CRDs and permissions are as they should be", extra={"namespace": self._namespace})

    async def missing(self) -> str | None:
        """One sentence, or None. Raises ApiError."""
        if lacking := lacking_fields(await self._schemas.published_schema()):
            return "; ".join(map(str, lacking))
        return self._denied(await self._rights.denied(OPERATOR_PERMISSIONS))

    async def _look(self) -> str | None:
        try:
            return await self.missing()
        except ApiError as error:
            return f"the API server does not answer as it should ({error}): {advice(error)}"

    def _denied(self, denied: list[Permission]) -> str | None:
        if not denied:
            return None
        told, kubectl = ", ".join(map(str, denied)), f"kubectl -n {self._namespace}"
        return (
            f"permissions in namespace {self._namespace} are missing: {told}: {_GIVE_RIGHTS}, "
            f"whose name ends with -operator (`{kubectl} get roles`): "
            f"`{kubectl} create rolebinding <a name> --role=<that Role> "
            "--serviceaccount=<its namespace>:<its name>`"
        )


def remedy(error: ApiError) -> str:
    """What to do about a refusal of what was there at the start, to be put behind its text; "" for others."""
    if isinstance(error, AccessDenied):
        return f": {_GIVE_RIGHTS}"
    return f": {APPLY_DEFINITIONS}" if isinstance(error, NotServed) else ""
