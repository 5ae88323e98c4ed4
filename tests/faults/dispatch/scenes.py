"""What the scenarios around hosts share: runs, waits on objects, and questions to the record of calls."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.metadata import utc_text
from astrabox_scheduler_crds.names import deployment_key, scheduled_run_name
from astrabox_scheduler_crds.run import FINISHED
from tests.faults.history.facts import Call, History, Object, Write
from tests.faults.stage.rig import Rig

DEPLOYMENT: Final = "d"
TAKEN_OVER_WITHIN: Final = 15.0 + 5.0
"""Seconds from the loss of a process to the next call for its runs: its Lease, and the time to notice."""
OpenRig = Callable[[Mapping[str, str]], Awaitable[Rig]]
"""The fixture `open_rig`."""
PREFIX: Final = "ASTRABOX_SCHEDULER_KUBERNETES_"


def alive(rig: Rig) -> set[str]:
    """Names of the processes that run now."""
    rig.actors.look()
    return {life.name for life in rig.journal.lives if life.end is None}


def settings(**values: str) -> dict[str, str]:
    """A host's environment."""
    return {PREFIX + name: value for name, value in values.items()}


def behaving(host: str | None = None, **calls: str) -> dict[str, Any]:
    """A payload that says how the handler behaves, in one host or in all."""
    return {"behaviour": calls | ({} if host is None else {"host": host})}


async def enqueue(
    rig: Rig, host: str, payload: Mapping[str, Any], count: int = 1, *, of: str = DEPLOYMENT
) -> list[str]:
    """Run now, so many times; the run ids."""
    door = rig.host(host)
    return [(await door.enqueue(of, payload, trigger="manual")).run_id for _ in range(count)]


async def lease_of(rig: Rig, host: str) -> str:
    """The Lease under which a host has runs assigned to it: that of a run it has just saved."""
    (name,) = await enqueue(rig, host, {})
    lease = (await run(rig, name))["spec"]["createdBy"]["identity"]
    assert isinstance(lease, str)
    return lease


async def live_leases(rig: Rig) -> set[str]:
    """Names of the Leases of hosts that have not ended in order."""
    found = json.loads(
        await rig.kubectl("get", "leases", "-l", f"{labels.ROLE_LABEL}=provider", "-o", "json")
    )
    return {each["metadata"]["name"] for each in found["items"] if each["spec"].get("holderIdentity")}


async def create_run(
    rig: Rig,
    name: str,
    payload: Mapping[str, Any],
    *,
    of: str = DEPLOYMENT,
    assignee: str | None = None,
    due: datetime | None = None,
) -> None:
    """A run by hand, as `kubectl create` does it. With `due` it is a scheduled one, under its name."""
    spec: dict[str, Any] = {"deploymentId": of, "trigger": "manual", "payload": json.dumps(payload)}
    if due is not None:
        name = scheduled_run_name(deployment_key(of), due)
        spec |= {"trigger": "schedule", "dueTime": utc_text(due)}
    marks = {labels.DEPLOYMENT_LABEL: deployment_key(of)} | (
        {labels.ASSIGNEE_LABEL: assignee} if assignee else {}
    )
    body = {
        "apiVersion": labels.API_VERSION,
        "kind": labels.RUN_KIND,
        "metadata": {"name": name, "labels": marks},
        "spec": spec,
    }
    await rig.kubectl("create", "-f", "-", input=json.dumps(body))


async def runs(rig: Rig) -> dict[str, Object]:
    """All runs, by name."""
    return {each["metadata"]["name"]: each for each in await rig.objects(labels.RUN_PLURAL)}


async def run(rig: Rig, name: str) -> Object:
    """One run; KeyError if there is none."""
    return (await runs(rig))[name]


def status(item: Object) -> Mapping[str, Any]:
    found = item.get("status") or {}
    assert isinstance(found, dict)
    return found


def phase(item: Object) -> str:
    return str(status(item).get("phase", "Queued"))


async def until_phase(
    rig: Rig, names: Collection[str], *wanted: str, within: float, what: str = ""
) -> dict[str, Object]:
    """Wait until all these runs are in one of the phases; they, by name."""
    seen: dict[str, Object] = {}

    async def there() -> bool:
        nonlocal seen
        found = await runs(rig)
        seen = {name: found[name] for name in names if name in found}
        for name, each in seen.items():
            if phase(each) in FINISHED and phase(each) not in wanted:
                raise AssertionError(f"{name} has ended otherwise: {status(each)}\n{rig.timeline()}")
        return len(seen) == len(set(names)) and all(phase(each) in wanted for each in seen.values())

    await rig.until(there, within, what or f"{len(names)} runs are {' or '.join(wanted)}")
    return seen


async def until_begun(rig: Rig, names: Iterable[str], step: str, within: float = 60) -> None:
    """Wait until the handler has been called for each of these runs."""
    missing = set(names)

    async def there() -> bool:
        missing.difference_update(call.run_id for call in rig.calls() if call.step == step)
        return not missing

    await rig.until(there, within, f"{step} is called for {len(missing)} runs")


def calls_of(
    calls: History | Iterable[Call], run_id: str, step: str | None = None, by: str | None = None
) -> list[Call]:
    """The calls for a run in their order."""
    every = calls.calls if isinstance(calls, History) else calls
    found = [
        call
        for call in every
        if call.run_id == run_id and step in (None, call.step) and by in (None, call.host)
    ]
    return sorted(found, key=lambda call: call.begun)


def steps(history: History, run_id: str) -> list[tuple[str, str]]:
    """Who was called with which step, in order."""
    return [(call.host, call.step) for call in calls_of(history, run_id)]


def writes_to_runs(
    history: History, by: Callable[[str], bool], after: float = 0.0, name: str | None = None
) -> list[Write]:
    """Writes of some processes to runs."""
    return [
        write
        for write in history.writes
        if write.resource == labels.RUN_PLURAL
        and by(write.by)
        and write.received >= after
        and name in (None, write.name)
    ]


def used_up(item: Object) -> int:
    """Attempts that count against the retries."""
    found = status(item)
    return int(found.get("attempts", 0)) - int(found.get("releases", 0))


def ended_as(history: History, names: Iterable[str]) -> Counter[str]:
    """How many of these runs ended how; `gone` for one that is not there."""
    return Counter(phase(history.runs[name]) if name in history.runs else "gone" for name in names)


def say(text: str) -> None:
    """Shown with -s, and with a failure."""
    sys.stdout.write(f"{text}\n")
