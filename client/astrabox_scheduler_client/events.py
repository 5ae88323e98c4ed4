"""Kubernetes Events (`events.k8s.io/v1`): short words for people, of bounded size."""

import hashlib
import json
import secrets
from typing import Final, Literal

from astrabox_scheduler_client.errors import AlreadyExists
from astrabox_scheduler_client.resource import segment
from astrabox_scheduler_client.transport import Transport
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.metadata import ObjectMeta, bounded, micro_text

_CONTROLLER: Final = f"{labels.GROUP}/operator"
_MAX_NAME: Final = 230  # a name has 253 characters, the suffix takes 17
_MAX_REASON: Final = 128
_MAX_NOTE: Final = 1000


class Events:
    """Creates Events in one namespace."""

    def __init__(self, transport: Transport, namespace: str, instance: str) -> None:
        """`instance` names this process (at most 128 characters are kept)."""
        self._transport = transport
        self._namespace = namespace
        self._path = f"/apis/events.k8s.io/v1/namespaces/{segment(namespace)}/events"
        self._instance = instance[:_MAX_REASON]

    async def create(
        self,
        kind: str,
        about: ObjectMeta,
        reason: str,
        note: str,
        *,
        type: Literal["Normal", "Warning"] = "Normal",  # noqa: A002 - the API's own name
        action: str = "Schedule",
        once: str | None = None,
    ) -> None:
        """Say `note` (cut to 1000 characters) about an object of ours. Raises ApiError.

        `once` tells what it is about in other words than the note's: whoever says it, it is said once.
        """
        known = f"{about.uid}/{reason}/{once}".encode()
        suffix = secrets.token_hex(8) if once is None else hashlib.sha256(known).hexdigest()[:16]
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {
                "name": f"{about.name[:_MAX_NAME]}.{suffix}",
                "namespace": self._namespace,
            },
            "eventTime": micro_text(self._transport.clock.now()),
            "type": type,
            "reason": reason[:_MAX_REASON],
            "action": action[:_MAX_REASON],
            "note": bounded(note, _MAX_NOTE),
            "reportingController": _CONTROLLER,
            "reportingInstance": self._instance,
            "regarding": {
                "apiVersion": labels.API_VERSION,
                "kind": kind,
                "namespace": self._namespace,
                "name": about.name,
                "uid": about.uid or "",
            },
        }
        try:
            await self._transport.request("POST", self._path, body=json.dumps(event).encode())
        except AlreadyExists:
            if once is None:
                raise
