"""What the scenarios around the store share: schedules, waits for minutes, runs and their ends."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from astrabox.seams.scheduler import Schedule, SchedulerUnavailable
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.names import deployment_key, scheduled_run_name
from tests.faults.history.facts import History, Object
from tests.faults.stage.rig import Rig

FINISHED: Final = frozenset({"Succeeded", "Failed", "Cancelled"})
MINUTE: Final = 60.0
_FOREIGN: Final = (
    "etcd",
    "kube",
    "resourceversion",
    "http",
    "409",
    "500",
    "429",
    "lease",
    "namespace",
    "/apis/",
)


def minutely(deployment_id: str, payload: Mapping[str, Any] | None = None, **fields: Any) -> Schedule:
    """A Deployment that is due every minute."""
    values: dict[str, Any] = {"cron": "* * * * *", "timezone": "UTC", "enabled": True} | fields
    return Schedule(deployment_id=deployment_id, payload=payload or {"of": deployment_id}, **values)


def behaving(host: str | None = None, **calls: str) -> dict[str, Any]:
    """A payload that says how the handler behaves, in one host or in all."""
    return {"behaviour": calls | ({} if host is None else {"host": host})}


async def start(rig: Rig, *, operators: int, hosts: int) -> None:
    """Start them side by side; returns when all are ready."""
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.start_operators(operators))
        group.create_task(rig.start_hosts(hosts))


async def apply_all(rig: Rig, host: str, rules: Iterable[Schedule]) -> None:
    """One apply after another."""
    for rule in rules:
        await rig.host(host).apply(rule)


def next_due(rig: Rig, lead: float) -> float:
    """The next whole minute that is at least `lead` seconds away (seconds since the epoch)."""
    return MINUTE * -(-(rig.now() + lead) // MINUTE)


async def until_time(rig: Rig, instant: float) -> None:
    """Wait for a time of the clock: the only event that a due time gives."""
    await asyncio.sleep(max(0.0, instant - rig.now()))


def run_at(deployment_id: str, due: float) -> str:
    """Name of the run of a due time."""
    return scheduled_run_name(deployment_key(deployment_id), datetime.fromtimestamp(due, UTC))


async def runs(rig: Rig) -> dict[str, Object]:
    """All runs, by name."""
    return {each["metadata"]["name"]: each for each in await rig.objects(labels.RUN_PLURAL)}


async def schedules(rig: Rig) -> dict[str, Object]:
    """All schedules that AstraBox has not deleted, by name."""
    found = await rig.objects(labels.SCHEDULE_PLURAL)
    return {each["metadata"]["name"]: each for each in found if not is_tombstone(each)}


def is_tombstone(item: Object) -> bool:
    """Whether it only says that it was deleted."""
    return labels.DELETED_LABEL in item["metadata"].get("labels", {}) and not item["spec"].get(
        "enabled", True
    )


async def lease_of(rig: Rig, host: str) -> str:
    """The Lease under which a host has runs assigned to it: that of a run it has just saved."""
    run_id = (await rig.host(host).enqueue("asked-for-its-lease", {}, trigger="manual")).run_id
    lease = (await runs(rig))[run_id]["spec"]["createdBy"]["identity"]
    assert isinstance(lease, str)
    return lease


async def create_run(rig: Rig, name: str, payload: Mapping[str, Any], assignee: str | None = None) -> None:
    """A run by hand, as `kubectl create` does it."""
    marks = {labels.DEPLOYMENT_LABEL: "by-hand"} | ({labels.ASSIGNEE_LABEL: assignee} if assignee else {})
    body = {
        "apiVersion": labels.API_VERSION,
        "kind": labels.RUN_KIND,
        "metadata": {"name": name, "labels": marks},
        "spec": {"deploymentId": "by-hand", "trigger": "manual", "payload": json.dumps(payload)},
    }
    await rig.kubectl("create", "-f", "-", input=json.dumps(body))


def phase(item: Object) -> str:
    """Its phase; what has no status yet is queued."""
    return str((item.get("status") or {}).get("phase", "Queued"))


async def until_phase(rig: Rig, names: Iterable[str], wanted: Iterable[str], within: float) -> None:
    """Wait until all these runs are in one of the phases."""
    missing, phases = set(names), frozenset(wanted)

    async def there() -> bool:
        found = await runs(rig)
        return all(name in found and phase(found[name]) in phases for name in missing)

    await rig.until(there, within, f"{len(missing)} runs are {'/'.join(sorted(phases))}")


async def until_there(rig: Rig, names: Iterable[str], within: float) -> None:
    """Wait until all these runs exist."""
    missing = set(names)

    async def there() -> bool:
        return not missing - (await runs(rig)).keys()

    await rig.until(there, within, f"{len(missing)} runs are there")


async def until_observed(rig: Rig, deployment_id: str, within: float) -> None:
    """Wait until the operators have told that they have seen the schedule's present rule."""
    name = deployment_key(deployment_id)

    async def seen() -> bool:
        found = (await schedules(rig)).get(name, {})
        generation = (found.get("status") or {}).get("observedGeneration")
        return generation is not None and generation == found["metadata"]["generation"]

    await rig.until(seen, within, f"the operators have seen {deployment_id}")


async def until_told_fired(rig: Rig, names: Iterable[str], due: float, within: float) -> None:
    """Wait until the status of these Deployments' schedules says that the due time has its run."""
    wanted = {deployment_key(name): datetime.fromtimestamp(due, UTC) for name in names}

    async def told() -> bool:
        found = await schedules(rig)
        last = {name: (found[name].get("status") or {}).get("lastDueTime") for name in wanted}
        return all(text and datetime.fromisoformat(text) >= wanted[name] for name, text in last.items())

    await rig.until(told, within, f"the statuses say that {len(wanted)} schedules have fired")


async def refused(call: Callable[[], Any]) -> SchedulerUnavailable | None:
    """Call AstraBox's way: the error of the seam, None if it was done; any other error is raised.

    G9: not a word of the engine is in its text.
    """
    try:
        await call()
    except SchedulerUnavailable as error:
        text = str(error).lower()
        assert not [word for word in _FOREIGN if word in text], text
        assert "try again" in text, text
        return error
    return None


def calls(history: History, run_id: str) -> Counter[str]:
    """How often each step was called for a run."""
    return Counter(call.step for call in history.calls if call.run_id == run_id)


def ends(history: History, names: Iterable[str]) -> Counter[str]:
    """How many of these runs ended how; `gone` for one that is not there."""
    return Counter(phase(history.runs[name]) if name in history.runs else "gone" for name in names)


def of_deployment(history: History, deployment_id: str) -> list[Object]:
    """The runs of a Deployment."""
    return [run for run in history.runs.values() if run["spec"]["deploymentId"] == deployment_id]


def begun_once_saved(history: History) -> None:
    """No start_session begins once a Session of the run has been saved."""
    for run_id, saved in _sessions_saved(history).items():
        late = [
            call
            for call in history.calls
            if call.run_id == run_id and call.step == "start_session" and call.begun > saved
        ]
        assert not late, f"{run_id}: start_session after its Session was saved"


def _sessions_saved(history: History) -> dict[str, float]:
    """When the API server answered the write that saved the Session, by run."""
    found: dict[str, float] = {}
    for write in history.writes:
        status = (write.after or {}).get("status") or {}
        if write.resource == labels.RUN_PLURAL and write.succeeded and status.get("sessionId"):
            at = write.completed or write.received
            found[write.name] = min(at, found.get(write.name, at))
    return found
