"""Operators that are to die at a point between two of their writes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from astrabox_scheduler_crds import labels
from tests.faults.history.facts import History
from tests.faults.scenes.objects import create_object
from tests.faults.stage.rig import Rig

WRITES: Final = {
    "run-created": ("create", "runinvocations"),
    "run-cancelled": ("patch", "runinvocations/status"),
    "run-deleted": ("delete", "runinvocations"),
    "schedule-status": ("patch", "deploymentschedules/status"),
    "schedule-removed": ("delete", "deploymentschedules"),
    "event": ("create", "events"),
    "lease-created": ("create", "leases"),
    "lease-renewed": ("update", "leases"),
    "lease-released": ("update", "leases"),
    "lease-deleted": ("delete", "leases"),
}
"""Every kind of write that an operator makes: the name of its points, its verb and its resource."""


@dataclass(frozen=True, slots=True)
class Victim:
    """An operator that is to die at a point."""

    name: str
    point: str
    action: str

    @property
    def code(self) -> int:
        """What it ends with."""
        return -9 if self.action == "kill" else 0

    def arm(self, rig: Rig) -> None:
        """The next time that it comes there it dies."""
        rig.arm(self.name, self.point, self.action)


def victims(names: Sequence[str], *deaths: str) -> list[Victim]:
    """One for each of these deaths, written as `kill before:event`."""
    told = [death.split() for death in deaths]
    return [Victim(name, point, action) for name, (action, point) in zip(names, told, strict=True)]


async def until_dead(rig: Rig, doomed: Sequence[Victim], within: float) -> None:
    """Wait until each has reached its point and is gone."""

    async def one(victim: Victim) -> None:
        await rig.reached(victim.name, victim.point, within=within)
        await rig.ended(victim.name)

    async with asyncio.TaskGroup() as group:
        for each in doomed:
            group.create_task(one(each))


def assert_died(history: History, doomed: Sequence[Victim]) -> None:
    """Each has ended as its death demands, and no other operator has ended."""
    ended = {life.name: life.code for life in history.lives if life.role == "operator" and life.ended}
    assert ended == {each.name: each.code for each in doomed}


def assert_writes_known(history: History) -> None:
    """No operator has made a write that is not in the table."""
    made = {
        (write.verb, f"{write.resource}/{write.subresource}".rstrip("/"))
        for write in history.writes
        if write.by.startswith("operator")
    }
    assert made <= set(WRITES.values()), made - set(WRITES.values())


async def spoil(rig: Rig, name: str) -> None:
    """A schedule as no host writes it: its operator tells by an Event that it never comes due."""
    spec = {"deploymentId": name, "cron": "0 0 31 2 *", "timeZone": "UTC", "payload": "{}"}
    await create_object(rig, labels.SCHEDULE_KIND, {"name": name}, spec)


async def leave_tombstone(rig: Rig, name: str) -> None:
    """What is left of a schedule that AstraBox deleted long ago."""
    spec = {
        "deploymentId": name,
        "cron": "0 0 1 1 *",
        "timeZone": "UTC",
        "payload": "{}",
        "enabled": False,
    }
    metadata = {
        "name": name,
        "labels": {labels.DEPLOYMENT_LABEL: name, labels.DELETED_LABEL: "true"},
        "annotations": {labels.APPLIED_AT_ANNOTATION: "2026-01-01T00:00:00Z"},
    }
    await create_object(rig, labels.SCHEDULE_KIND, metadata, spec)


async def leave_lease(rig: Rig, name: str) -> None:
    """The Lease of a host that was gone long ago."""
    spec = {
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:00:00.000000Z",
        "renewTime": "2026-01-01T01:00:00.000000Z",
    }
    metadata = {"name": name, "labels": {labels.ROLE_LABEL: "provider"}}
    await create_object(rig, "Lease", metadata, spec, api_version="coordination.k8s.io/v1")
