"""What the API server serves, as far as anybody who is logged in may ask."""

import json
from collections.abc import Mapping
from typing import Any, Final

from astrabox_scheduler_client.errors import MalformedAnswer, NotFound, NotServed
from astrabox_scheduler_client.transport import Transport
from astrabox_scheduler_crds import labels

_SCHEMA_PATH: Final = f"/openapi/v3/apis/{labels.API_VERSION}"


class Discovery:
    """The schema that the API server publishes."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def published_schema(self) -> Mapping[str, Any] | None:
        """The OpenAPI v3 document of our group and version, None where the CRDs are not installed.

        Raises ApiError.
        """
        try:
            answer = await self._transport.request("GET", _SCHEMA_PATH)
        except (NotFound, NotServed):
            return None
        try:
            document = json.loads(answer)
        except ValueError:
            document = None
        if not isinstance(document, dict):
            raise MalformedAnswer(f"GET {_SCHEMA_PATH}: not a JSON object")
        return document
