"""What the scenarios around due times share: whole minutes, schedules, and what became of each due time."""

from __future__ import annotations

import asyncio
import math
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from astrabox.host_deployments import DeploymentRecords
from astrabox.seams.scheduler import Schedule
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.assignment import owner
from astrabox_scheduler_crds.names import deployment_key, scheduled_run_name
from tests.faults.history.facts import Call, History, Object, Write
from tests.faults.stage.clock import Clock
from tests.faults.stage.rig import Rig

MINUTE: Final = 60.0
EVERY_MINUTE: Final = "* * * * *"
ON_TIME: Final = 10.0
"""Seconds after its due time within which a run is created on a loaded machine when nothing is wrong."""
LOADED: Final = 15.0
"""The same when many more are due, or when processes have just started or ended."""
TAKEN_OVER: Final = 15.0 + 13.0
"""The same when its operator was lost: a Lease's duration, and the time to notice and to look again."""
OpenRig = Callable[..., Awaitable[Rig]]
"""The fixture that opens a rig with settings of its own."""
PREFIX: Final = "ASTRABOX_SCHEDULER_OPERATOR_"


def settings(**values: object) -> dict[str, str]:
    """An operator's environment."""
    return {PREFIX + name: str(value) for name, value in values.items()}


def minute_after(rig: Rig, lead: float) -> float:
    """The first whole minute at least `lead` seconds from now, in seconds since the epoch."""
    return math.ceil((rig.now() + lead) / MINUTE) * MINUTE


async def reach(rig: Rig, instant: float) -> None:
    """Wait for an instant of the test machine's clock."""
    await asyncio.sleep(max(0.0, instant - rig.now()))


def minutes_between(first: float, last: float) -> list[float]:
    """The whole minutes from `first` to `last`, both included."""
    return [first + number * MINUTE for number in range(round((last - first) / MINUTE) + 1)]


async def start_operators(rig: Rig, names: Sequence[str], clocks: Mapping[str, float] | None = None) -> None:
    """Start these, two at a time: a start costs seconds of CPU, and each has a minute to be ready."""
    for number in range(0, len(names), 2):
        async with asyncio.TaskGroup() as group:
            for name in names[number : number + 2]:
                clock = Clock.offset(clocks[name]) if clocks and name in clocks else None
                group.create_task(rig.start_operator(name, clock=clock))


def operators(first: int, last: int) -> list[str]:
    """Their names."""
    return [f"operator-{number}" for number in range(first, last + 1)]


def schedule(
    deployment_id: str, cron: str = EVERY_MINUTE, *, enabled: bool = True, **payload: Any
) -> Schedule:
    """A Schedule in UTC."""
    return Schedule(deployment_id, cron, "UTC", enabled, payload)


async def install(rig: Rig, rules: Sequence[Schedule], host: str = "host-1") -> None:
    """Let these be AstraBox's Deployment records, and a host reconcile them."""
    records = DeploymentRecords(rig.actors.deployments)
    for rule in rules:
        records.put(rule.deployment_id, rule)
    await rig.host(host, within=60).reconcile()


def cron_at(*dues: float) -> str:
    """The rule that is due at the minutes of these instants in every hour."""
    minutes = sorted({datetime.fromtimestamp(due, UTC).minute for due in dues})
    return f"{','.join(map(str, minutes))} * * * *"


def run_name(deployment_id: str, due: float) -> str:
    """The name of a due time's run."""
    return scheduled_run_name(deployment_key(deployment_id), datetime.fromtimestamp(due, UTC))


def due_of(run: Object) -> float:
    """A scheduled run's due time."""
    return datetime.fromisoformat(run["spec"]["dueTime"]).timestamp()


def creates(history: History) -> dict[str, list[Write]]:
    """The creates that were carried out, whether or not anybody lived to hear of it, by the run's name."""
    found: defaultdict[str, list[Write]] = defaultdict(list)
    for write in history.writes:
        done = write.succeeded or write.after is not None
        if (write.resource, write.verb) == (labels.RUN_PLURAL, "create") and done:
            found[write.name].append(write)
    return found


def refused_creates(history: History, by: str) -> list[Write]:
    """The creates of runs to which an operator heard that the name was there already."""
    return [
        write
        for write in history.writes
        if (write.resource, write.verb, write.by, write.code) == (labels.RUN_PLURAL, "create", by, 409)
    ]


def assert_fired(history: History, deployments: Iterable[str], due: float, within: float) -> None:
    """Each has exactly one run of this due time, created at it or at most `within` seconds later."""
    made = creates(history)
    late = {}
    for deployment in deployments:
        writes = made.get(run_name(deployment, due), [])
        assert len(writes) == 1, f"{deployment} at {text(due)}: {len(writes)} creates"
        late[deployment] = writes[0].received - due
    assert min(late.values()) >= 0, ("before its due time", text(due), min(late.values()))
    assert max(late.values()) <= within, ("later than allowed", text(due), max(late.values()), within)


def assert_not_fired(history: History, deployments: Iterable[str], dues: Iterable[float]) -> None:
    """None of these due times has ever had a run."""
    made = creates(history)
    names = {run_name(deployment, due) for deployment in deployments for due in dues}
    assert not names & made.keys(), sorted(names & made.keys())


def first_calls(history: History, step: str = "start_session") -> dict[str, Call]:
    """The first call of this step for each run."""
    found: dict[str, Call] = {}
    for call in sorted(history.calls, key=lambda each: each.begun):
        if call.step == step:
            found.setdefault(call.run_id, call)
    return found


def phases(runs: Mapping[str, Object], names: Iterable[str]) -> dict[str, str]:
    """The phase of each of these runs; `gone` for one that is not there."""
    return {
        name: (runs[name].get("status") or {}).get("phase", "Queued") if name in runs else "gone"
        for name in names
    }


async def runs_of(rig: Rig, due: float) -> dict[str, Object]:
    """The runs of one due time that are there, by name."""
    found = await rig.objects(labels.RUN_PLURAL)
    return {
        run["metadata"]["name"]: run for run in found if run["spec"].get("dueTime") and due_of(run) == due
    }


async def until_fired(rig: Rig, deployments: Iterable[str], due: float, within: float) -> None:
    """Wait until each has its run of this due time."""
    wanted = {run_name(deployment, due) for deployment in deployments}

    async def there() -> bool:
        return wanted <= (await runs_of(rig, due)).keys()

    await rig.until(there, within, f"{len(wanted)} runs of {text(due)}", every=0.5)


async def until_settled_to(rig: Rig, deployments: Iterable[str], due: float, within: float) -> None:
    """Wait until the status of each says that it has fired up to this due time."""
    wanted = {deployment_key(each) for each in deployments}

    async def there() -> bool:
        found = await rig.objects(labels.SCHEDULE_PLURAL)
        return wanted <= {each["metadata"]["name"] for each in found if last_due(each) >= due}

    await rig.until(there, within, f"{len(wanted)} statuses say {text(due)}", every=0.5)


async def until_shared(rig: Rig, deployments: Iterable[str], within: float = 120.0) -> None:
    """Wait until some operator has seen each: its status tells the next due time."""
    wanted = {deployment_key(each) for each in deployments}

    async def there() -> bool:
        found = await rig.objects(labels.SCHEDULE_PLURAL)
        return wanted <= {each["metadata"]["name"] for each in found if status(each).get("nextDueTime")}

    await rig.until(there, within, f"{len(wanted)} statuses tell the next due time", every=0.5)


def status(item: Object) -> Mapping[str, Any]:
    """An object's status, empty while it has none."""
    return item.get("status") or {}


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
    return next(
        (each["status"] for each in status(item).get("conditions", ()) if each["type"] == "Ready"), ""
    )


def lease_of(rig: Rig, operator: str) -> str:
    """The name of the Lease of an operator's latest life, as its log tells it."""
    text = rig.actors.processes.log(operator).read_text()
    return str(re.findall(r": starting .*\bidentity=(\S+)", text)[-1])


def shared_out(rig: Rig, operators: Sequence[str], each: int, prefix: str = "s") -> dict[str, list[str]]:
    """Deployment ids of which each of these live operators owns so many, by operator."""
    names = {lease_of(rig, operator): operator for operator in operators}
    shares: dict[str, list[str]] = {operator: [] for operator in operators}
    number = 0
    while any(len(share) < each for share in shares.values()):
        number += 1
        share = shares[names[str(owner(f"{prefix}{number}", names))]]
        if len(share) < each:
            share.append(f"{prefix}{number}")
    return shares


def succession(rig: Rig, operators: Sequence[str], item: str) -> list[str]:
    """Which operator owns `item`, which does when that one is gone, and so on."""
    left, order = {lease_of(rig, operator): operator for operator in operators}, []
    while left:
        order.append(left.pop(str(owner(item, left))))
    return order


def text(instant: float) -> str:
    """An instant as people read it."""
    return datetime.fromtimestamp(instant, UTC).strftime("%H:%M:%SZ")


def finished_because(run: Object) -> tuple[str, str]:
    """The last phase of a run, and the reason that its condition gives."""
    told = status(run)
    reasons = [each["reason"] for each in told.get("conditions", ()) if each["type"] == "Finished"]
    return told.get("phase", "Queued"), "".join(reasons)


async def events_about(rig: Rig, names: Iterable[str], reason: str, within: float) -> dict[str, list[Object]]:
    """Wait until there is an Event with this reason about each of these schedules; they, by name."""
    wanted = set(names)
    seen: defaultdict[str, list[Object]] = defaultdict(list)

    async def there() -> bool:
        seen.clear()
        for event in await rig.events():
            if (event["regarding"]["kind"], event["reason"]) == (labels.SCHEDULE_KIND, reason):
                seen[event["regarding"]["name"]].append(event)
        return wanted <= seen.keys()

    await rig.until(there, within, f"Events {reason} about {len(wanted)} objects", every=0.5)
    return {name: seen[name] for name in wanted}
