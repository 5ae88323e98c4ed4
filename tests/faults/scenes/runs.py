"""Runs: how they come to be, what is stored of them, and waits for their phases."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.metadata import utc_text
from astrabox_scheduler_crds.names import deployment_key, scheduled_run_name
from tests.faults.history.due import instant, text
from tests.faults.history.facts import History, Object
from tests.faults.history.objects import FINISHED
from tests.faults.scenes.objects import by_name, create_object, status
from tests.faults.stage.rig import Rig

RUN_NOW: Final = "run-now"
"""The Deployment whose runs AstraBox is asked for."""
BY_HAND: Final = "by-hand"
"""The Deployment whose runs are made by `kubectl`."""


def behaving(host: str | None = None, **calls: str) -> dict[str, Any]:
    """A payload that says how the handler behaves, in one host or in all."""
    return {"behaviour": calls | ({} if host is None else {"host": host})}


async def enqueue(
    rig: Rig, host: str, payload: Mapping[str, Any], count: int = 1, *, of: str = RUN_NOW
) -> list[str]:
    """Run now, so many times; the run ids."""
    door = rig.host(host)
    return [(await door.enqueue(of, payload, trigger="manual")).run_id for _ in range(count)]


async def create_run(
    rig: Rig,
    name: str,
    payload: Mapping[str, Any],
    *,
    of: str = BY_HAND,
    assignee: str | None = None,
    due: datetime | None = None,
) -> None:
    """A run as `kubectl create` makes it. With `due` it is a scheduled one, under its name."""
    spec: dict[str, Any] = {"deploymentId": of, "trigger": "manual", "payload": json.dumps(payload)}
    if due is not None:
        name = scheduled_run_name(deployment_key(of), due)
        spec |= {"trigger": "schedule", "dueTime": utc_text(due)}
    marks = {labels.DEPLOYMENT_LABEL: deployment_key(of)}
    if assignee is not None:
        marks[labels.ASSIGNEE_LABEL] = assignee
    await create_object(rig, labels.RUN_KIND, {"name": name, "labels": marks}, spec)


def run_name(deployment_id: str, due: float) -> str:
    """The name of a due time's run."""
    return scheduled_run_name(deployment_key(deployment_id), instant(due))


def due_of(run: Object) -> float:
    """A scheduled run's due time."""
    return datetime.fromisoformat(run["spec"]["dueTime"]).timestamp()


async def runs(rig: Rig) -> dict[str, Object]:
    """All runs, by name."""
    return by_name(await rig.objects(labels.RUN_PLURAL))


async def runs_due_at(rig: Rig, due: float) -> dict[str, Object]:
    """The runs of one due time that are there, by name."""
    found = await runs(rig)
    return {name: run for name, run in found.items() if run["spec"].get("dueTime") and due_of(run) == due}


def runs_of_deployment(history: History, deployment_id: str) -> list[Object]:
    """The runs of a Deployment."""
    return [run for run in history.runs.values() if run["spec"]["deploymentId"] == deployment_id]


def phase(run: Object) -> str:
    """Its phase; what has no status yet is queued."""
    return str(status(run).get("phase", "Queued"))


def phases(found: Mapping[str, Object], names: Iterable[str]) -> dict[str, str]:
    """The phase of each of these runs; `gone` for one that is not there."""
    return {name: _phase_or_gone(found, name) for name in names}


def ended_as(history: History, names: Iterable[str]) -> Counter[str]:
    """How many of these runs ended how; `gone` for one that is not there."""
    return Counter(_phase_or_gone(history.runs, name) for name in names)


def finished_because(run: Object) -> tuple[str, str]:
    """The last phase of a run, and the reason that its condition gives."""
    conditions = status(run).get("conditions", ())
    return phase(run), "".join(each["reason"] for each in conditions if each["type"] == "Finished")


async def until_phase(rig: Rig, names: Collection[str], *wanted: str, within: float) -> dict[str, Object]:
    """Wait until all these runs are in one of the phases; they, by name. Fails if one ends otherwise."""
    seen: dict[str, Object] = {}

    async def there() -> bool:
        nonlocal seen
        found = await runs(rig)
        seen = {name: found[name] for name in names if name in found}
        for name, each in seen.items():
            if phase(each) in FINISHED and phase(each) not in wanted:
                raise AssertionError(f"{name} has ended otherwise: {status(each)}\n{rig.timeline()}")
        return len(seen) == len(set(names)) and all(phase(each) in wanted for each in seen.values())

    await rig.until(there, within, f"{len(names)} runs are {' or '.join(wanted)}")
    return seen


async def until_fired(rig: Rig, deployments: Iterable[str], due: float, within: float) -> None:
    """Wait until each has its run of this due time."""
    wanted = {run_name(each, due) for each in deployments}

    async def there() -> bool:
        return wanted <= (await runs_due_at(rig, due)).keys()

    await rig.until(there, within, f"{len(wanted)} runs of {text(due)}")


def _phase_or_gone(found: Mapping[str, Object], name: str) -> str:
    return phase(found[name]) if name in found else "gone"
