"""Hosts ended between every two writes and around both handler calls: no run is lost."""

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from random import Random

import pytest

from astrabox.seams.scheduler import Schedule, SchedulerError
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.assignment import owner
from astrabox_scheduler_crds.transitions import Cancellation
from tests.faults.dispatch.crash_table import HOLDING, PLACES, Place, uncovered
from tests.faults.history.check import assert_holds
from tests.faults.history.facts import History, Object
from tests.faults.scenes.calls import calls_of, until_begun
from tests.faults.scenes.minutes import minute_after, until_time
from tests.faults.scenes.objects import status
from tests.faults.scenes.processes import alive, host_lease, host_settings
from tests.faults.scenes.runs import behaving, create_run, enqueue, runs_of_deployment
from tests.faults.scenes.schedules import ONCE_A_YEAR, schedule
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(560)]

HEIR = "heir"
HALF = len(PLACES) // 2


def _rule(place: Place, version: int) -> Schedule:
    return schedule(place.victim, ONCE_A_YEAR, version=version)


def test_every_write_of_a_host_is_in_the_table() -> None:
    """A write kind that is new to the launcher has to get a place in the table."""
    assert uncovered() == set()


ACTIONS = [
    pytest.param("seeded"),
    pytest.param("kill", marks=pytest.mark.slow),
    pytest.param("term", marks=pytest.mark.slow),
]


@pytest.mark.xdist_group("both-cores")
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("places", [PLACES[:HALF], PLACES[HALF:]], ids=["around-runs", "in-runs"])
async def test_host_ended_at_every_point(rig: Rig, places: tuple[Place, ...], action: str) -> None:
    """RE-11: one host a point; each run ends under its id and with the saved Session, after certain calls.

    The seed draws which points kill and which terminate; the slow variants do both at each.
    """
    actions = _drawn(rig.seed) if action == "seeded" else dict.fromkeys(places, action)
    await rig.start_host(HEIR)
    attended = minute_after(rig, 0)
    gate = asyncio.Semaphore(5)  # side by side; more would keep each other from starting in time
    await asyncio.gather(*(_start(rig, place, actions[place], gate) for place in places))
    erased = {place: _rule(place, 0) for place in places if place.how == "erase"}
    await rig.host(HEIR).reconcile(erased.values())
    await asyncio.gather(*(_prepare(rig, place) for place in places))
    scene = Scene(await live_leases(rig), erased, attended)
    for place in erased:  # their reconcile would touch the schedules of the others
        await _bring(rig, place, actions[place], scene)
    others = [place for place in places if place.how not in ("start", "erase")]
    await until_time(rig, attended)
    await asyncio.gather(*(_bring(rig, place, actions[place], scene) for place in others))
    await rig.until(lambda: not (alive(rig) - {HEIR}), 60, "all victims have ended")
    await rig.start_host("fresh")  # what it reconciles at its start is what AstraBox has on record
    history = await rig.collect()
    for place in places:
        _check(history, place, actions[place])
    assert_holds(history)


def _drawn(seed: int) -> dict[Place, str]:
    rng = Random(seed)
    return {place: rng.choice(("kill", "term")) for place in PLACES}


async def _start(rig: Rig, place: Place, action: str, gate: asyncio.Semaphore) -> None:
    if place.how == "start":
        rig.arm(place.victim, place.point, action)
    async with gate:
        await rig.start_host(place.victim, ready=False, env=host_settings(STOP_TIMEOUT_SECONDS=2))
        if place.how == "start":
            await rig.ended(place.victim, within=120)
        else:
            await rig.ready(place.victim)


async def _prepare(rig: Rig, place: Place) -> None:
    """What the host has in hand when its end comes: nothing, or a call that hangs in this host."""
    if place.how in HOLDING:
        held = await enqueue(
            rig, place.victim, behaving(place.victim, start_session="hang:600"), of=place.victim
        )
        await until_begun(rig, held, "start_session")


async def live_leases(rig: Rig) -> set[str]:
    """Names of the Leases of hosts that have not ended in order."""
    found = json.loads(
        await rig.kubectl("get", "leases", "-l", f"{labels.ROLE_LABEL}=provider", "-o", "json")
    )
    return {each["metadata"]["name"] for each in found["items"] if each["spec"].get("holderIdentity")}


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is when the hosts are brought to their points."""

    leases: set[str]
    """Of the hosts."""
    erased: Mapping[Place, Schedule]
    """Schedules that AstraBox does not know any more."""
    attended: float
    """A due time at which a host was there."""


async def _bring(rig: Rig, place: Place, action: str, scene: Scene) -> None:
    """Bring the host to its point."""
    lease = await host_lease(rig, place.victim) if place.how in ("adopt", "cancel") else ""
    rig.arm(place.victim, place.point, action)
    door = rig.host(place.victim)
    if place.how in ("update", "bury"):
        await rig.host(HEIR).apply(_rule(place, 0))
    with suppress(ConnectionError, SchedulerError):  # nobody knows then
        match place.how:
            case "run":
                await enqueue(rig, place.victim, {}, of=place.victim)
            case "fail":
                await enqueue(
                    rig, place.victim, behaving(place.victim, start_session="fail:1"), of=place.victim
                )
            case "adopt":
                names = (f"{place.victim}-by-hand-{number}" for number in range(10_000))
                name = next(name for name in names if owner(name, scene.leases) == lease)
                await create_run(rig, name, {}, of=place.victim)
            case "cancel":
                due = datetime.fromtimestamp(scene.attended, UTC)  # of a schedule that is not there
                await create_run(rig, "", {}, of=place.victim, assignee=lease, due=due)
            case "stop":
                await rig.terminate(place.victim, within=60)
            case "create" | "update":
                await door.apply(_rule(place, 1))
            case "bury":
                await door.delete(place.victim)
            case "erase":
                await door.reconcile([rule for other, rule in scene.erased.items() if other != place])


def is_withdrawn(run: Object) -> bool:
    """Whether a stop cut its command off: the create went through, and AstraBox was told an error."""
    conditions = status(run).get("conditions", ())
    return any(each["reason"] == Cancellation.NOT_SAVED.reason for each in conditions)


def _check(history: History, place: Place, action: str) -> None:
    found = runs_of_deployment(history, place.victim)
    told = f"{place} {action}: {[status(item) for item in found]}"
    if place.point == "before:run-created":
        assert len(found) <= (action == "term"), told  # not answered in either case
    else:
        assert len(found) == (place.how != "start"), told
    for item in found:
        name = item["metadata"]["name"]
        phase, (starts, admits) = "Succeeded", place.calls(action)
        if place.how == "cancel" or (place.point == "before:run-created" and is_withdrawn(item)):
            phase, (starts, admits) = "Cancelled", (0, 0)
        assert status(item)["phase"] == phase, told
        calls = [call.step for call in calls_of(history, name)]
        assert (calls.count("start_session"), calls.count("admit_turn")) == (starts, admits), told
        assert calls == sorted(calls, key=("start_session", "admit_turn").index), told
    rule = history.schedules.get(place.victim)
    if place.how in ("create", "update"):
        assert rule is not None, told
        assert rule["spec"]["payload"] == '{"version":1}', (told, rule)
    else:
        assert rule is None or labels.DELETED_LABEL in rule["metadata"]["labels"], told
