"""Objects of the API server: how they are read, and how a hand makes them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from astrabox_scheduler_crds import labels
from tests.faults.history.facts import Object
from tests.faults.stage.rig import Rig


def by_name(items: Iterable[Object]) -> dict[str, Object]:
    """The same by their names."""
    return {each["metadata"]["name"]: each for each in items}


def status(item: Object) -> Mapping[str, Any]:
    """An object's status, empty while it has none."""
    found = item.get("status") or {}
    assert isinstance(found, dict)
    return found


async def create_object(
    rig: Rig,
    kind: str,
    metadata: Mapping[str, Any],
    spec: Mapping[str, Any],
    *,
    api_version: str = labels.API_VERSION,
) -> None:
    """`kubectl create` of an object, by default one of ours."""
    body = {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}
    await rig.kubectl("create", "-f", "-", input=json.dumps(body))
