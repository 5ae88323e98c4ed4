"""Our CustomResourceDefinitions as an older or a newer release has them: made from the present ones."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from astrabox_scheduler_crds.crd import run_crd, schedule_crd
from astrabox_scheduler_crds.labels import API_VERSION
from tests.faults.stage.rig import Rig

NEWEST: Final[Mapping[str, tuple[str, ...]]] = {
    "DeploymentSchedule": ("status.skipped", "spec.earlierRules"),
    "RunInvocation": ("status.releases", "spec.createdBy"),
}
"""Optional fields that an older release did not have."""
LATER_PHASE: Final = "Parked"


def present() -> list[dict[str, Any]]:
    return [copy.deepcopy(schedule_crd()), copy.deepcopy(run_crd())]


def older() -> list[dict[str, Any]]:
    """Without the newest fields and the rules about them."""
    found = present()
    for crd in found:
        schema = _schema(crd)
        for path in NEWEST[crd["spec"]["names"]["kind"]]:
            part, name = path.split(".")
            del schema["properties"][part]["properties"][name]
            rules = schema["x-kubernetes-validations"]
            schema["x-kubernetes-validations"] = [each for each in rules if name not in each["rule"]]
    return found


def newer() -> list[dict[str, Any]]:
    """With a phase that this release does not know."""
    found = present()
    for crd in found:
        phase = _schema(crd)["properties"]["status"]["properties"].get("phase")
        if phase is not None:
            phase["enum"].append(LATER_PHASE)
    return found


def _schema(crd: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


async def _install(rig: Rig, definitions: list[dict[str, Any]]) -> None:
    """`kubectl apply`, and wait until the API server publishes exactly these fields."""
    plane = rig.own_plane  # they are those of a whole cluster
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": definitions})
    await asyncio.to_thread(plane.kubectl, "apply", "-f", "-", input=text)
    marks = [LATER_PHASE, *(path.split(".")[1] for paths in NEWEST.values() for path in paths)]

    async def published() -> bool:
        document = await rig.kubectl("get", "--raw", f"/openapi/v3/apis/{API_VERSION}")
        return all((f'"{mark}"' in document) == (f'"{mark}"' in text) for mark in marks)

    await rig.until(published, 60, "the definitions are published")


@asynccontextmanager
async def installed(rig: Rig, definitions: list[dict[str, Any]]) -> AsyncIterator[None]:
    """These inside, the present ones afterwards."""
    await _install(rig, definitions)
    try:
        yield
    finally:
        await _install(rig, present())
