"""Schedules: how they come to be, what is stored of them, and waits until operators have seen them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from astrabox.host_deployments import DeploymentRecords
from astrabox.seams.scheduler import Schedule
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.names import deployment_key
from tests.faults.history.due import instant, text
from tests.faults.history.facts import Object
from tests.faults.history.rules import is_tombstone
from tests.faults.scenes.objects import by_name, status
from tests.faults.stage.rig import Rig

EVERY_MINUTE: Final = "* * * * *"
ONCE_A_YEAR: Final = "0 0 1 1 *"
"""Not due in any test."""


def schedule(
    deployment_id: str, cron: str = EVERY_MINUTE, *, enabled: bool = True, **payload: Any
) -> Schedule:
    """A Schedule in UTC; by default its payload is one that no other has."""
    return Schedule(deployment_id, cron, "UTC", enabled, payload or {"of": deployment_id})


def cron_at(*dues: float) -> str:
    """The rule that is due at the minutes of these instants in every hour."""
    minutes = sorted({instant(due).minute for due in dues})
    return f"{','.join(map(str, minutes))} * * * *"


async def apply_all(rig: Rig, host: str, rules: Iterable[Schedule]) -> None:
    """One apply after another."""
    for rule in rules:
        await rig.host(host).apply(rule)


async def delete_all(rig: Rig, host: str, deployments: Iterable[str]) -> None:
    """One delete after another: nothing more is due then, so that the history can come to rest."""
    for each in deployments:
        await rig.host(host).delete(each)


async def install(rig: Rig, rules: Sequence[Schedule], host: str = "host-1") -> None:
    """Let these be AstraBox's Deployment records, and a host reconcile them: faster than many an apply."""
    records = DeploymentRecords(rig.actors.deployments)
    for rule in rules:
        records.put(rule.deployment_id, rule)
    await rig.host(host, within=60).reconcile()


async def schedules(rig: Rig) -> dict[str, Object]:
    """All schedules that AstraBox has not deleted, by name."""
    found = await rig.objects(labels.SCHEDULE_PLURAL)
    return by_name(each for each in found if not is_tombstone(each))


async def stored_rules(rig: Rig) -> dict[str, Schedule]:
    """What is stored of each Deployment, as AstraBox would say it.

    Whatever is marked as deleted is left out: AstraBox wants no schedule with that mark.
    """
    found = await rig.objects(labels.SCHEDULE_PLURAL)
    live = [each for each in found if labels.DELETED_LABEL not in each["metadata"].get("labels", {})]
    return {each["spec"]["deploymentId"]: _rule_of(each) for each in live}


def last_due(item: Object) -> float:
    """The last due time that a schedule's status tells, 0 for none."""
    told = status(item).get("lastDueTime")
    return datetime.fromisoformat(told).timestamp() if told else 0.0


def skipped(item: Object) -> tuple[int, str]:
    """How many due times a schedule's status calls skipped, and why."""
    told = status(item).get("skipped") or {}
    return told.get("count", 0), told.get("reason", "")


def ready(item: Object) -> str:
    """The status of a schedule's Ready condition."""
    conditions = status(item).get("conditions", ())
    return next((each["status"] for each in conditions if each["type"] == "Ready"), "")


async def until_all(
    rig: Rig, deployments: Iterable[str], holds: Callable[[Object], bool], within: float, what: str
) -> None:
    """Wait until each of these has a schedule of which this holds."""
    wanted = {deployment_key(each) for each in deployments}

    async def there() -> bool:
        found = await schedules(rig)
        return wanted <= {name for name, each in found.items() if holds(each)}

    await rig.until(there, within, f"{len(wanted)} schedules {what}")


async def until_settled_to(rig: Rig, deployments: Iterable[str], due: float, within: float) -> None:
    """Wait until the status of each says that it has fired up to this due time."""
    await until_all(rig, deployments, lambda each: last_due(each) >= due, within, f"tell of {text(due)}")


async def until_shared(rig: Rig, deployments: Iterable[str], within: float = 120.0) -> None:
    """Wait until some operator has seen each: its status tells the next due time."""
    await until_all(
        rig, deployments, lambda each: bool(status(each).get("nextDueTime")), within, "tell the next due time"
    )


async def until_observed(rig: Rig, deployment_id: str, within: float) -> None:
    """Wait until an operator has told that it has seen the schedule's present rule."""

    def observed(item: Object) -> bool:
        return bool(status(item).get("observedGeneration") == item["metadata"]["generation"])

    await until_all(rig, [deployment_id], observed, within, f"tell that {deployment_id} was seen")


def _rule_of(item: Object) -> Schedule:
    spec = item["spec"]
    payload = json.loads(spec["payload"])
    return Schedule(spec["deploymentId"], spec["cron"], spec["timeZone"], spec.get("enabled", True), payload)
