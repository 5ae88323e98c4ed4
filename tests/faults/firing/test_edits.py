"""Edits in the seconds around a due time: it belongs to the rule, and to the payload, that held at it."""

import asyncio

import pytest

from astrabox_scheduler_crds import labels
from tests.faults.firing.fired import assert_fired, assert_not_fired
from tests.faults.history.check import assert_holds
from tests.faults.history.due import instant
from tests.faults.scenes.calls import calls_of, first_calls
from tests.faults.scenes.minutes import MINUTE, minute_after, until_time
from tests.faults.scenes.runs import run_name, until_fired
from tests.faults.scenes.schedules import cron_at, install, schedule, skipped, until_shared
from tests.faults.scenes.writes import creates
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]

OFFSETS = (-2.0, -1.0, -0.5, -0.2, -0.1, 0.0, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds after the due time at which a rule is edited."""
FLIPS = 50
FLIPS_SECONDS = 2.0


def past(when: float) -> str:
    """A rule that was due at this instant, and is again tomorrow."""
    moment = instant(when)
    return f"{moment.minute} {moment.hour} * * *"


async def flip(rig: Rig, deployment: str, *, last: bool) -> None:
    """Enable and disable it again and again, and leave it as `last` says."""
    door, begun = rig.host("host-1"), rig.now()
    for number in range(FLIPS):
        enabled = last if (FLIPS - number) % 2 else not last
        await door.apply(schedule(deployment, enabled=enabled))
        await until_time(rig, begun + (number + 1) * FLIPS_SECONDS / FLIPS)


async def edit_at(rig: Rig, when: float, deployment: str, cron: str) -> tuple[float, float]:
    """Give it another rule at this instant; when that was sent, and when it returned."""
    await until_time(rig, when)
    sent = rig.now()
    await rig.host("host-2").apply(schedule(deployment, cron))
    return sent, rig.now()


@pytest.mark.waits(120)
async def test_edits_around_a_due_time(rig: Rig) -> None:
    """FI-03, FI-04, WA-05: the old rule's due time fires, the new counts from its edit; a last flip wins."""
    await rig.start_operators(2)
    await rig.start_hosts(2)
    same = [f"same-{number}" for number in range(len(OFFSETS))]
    other = [f"other-{number}" for number in range(len(OFFSETS))]
    fixed = ["past", "plain", "off", "on"]
    await install(rig, [schedule(each) for each in (*same, *other, *fixed)])
    await until_shared(rig, [*same, *other, *fixed])
    due = minute_after(rig, 26)
    following = due + MINUTE
    await until_time(rig, due - 25)
    await rig.host("host-1").apply(schedule("past", past(due - 2 * MINUTE)))
    await asyncio.gather(*(flip(rig, each, last=each == "on") for each in ("off", "on")))
    assert rig.now() < due - 3, "the machine is too slow for this scenario"
    async with asyncio.TaskGroup() as group:
        edits = {
            name: group.create_task(edit_at(rig, due + offset, name, cron))
            for names, cron in ((same, cron_at(due, following)), (other, cron_at(following)))
            for name, offset in zip(names, OFFSETS, strict=True)
        }
    await until_fired(rig, [*same, *other, "plain", "on"], following, within=following + 30 - rig.now())
    history = await rig.collect()
    assert_fired(history, [*same, "plain", "on"], due, within=15)
    assert_fired(history, [*same, *other, "plain", "on"], following, within=15)
    assert_not_fired(history, ["past", "off"], [due, following])
    for name, task in edits.items():
        sent, returned = task.result()
        fired = len(creates(history).get(run_name(name, due), ()))
        if sent > due + 0.01 and name in other:
            assert fired == 1, f"{name}: edited {sent - due:.3f} s after its due time, which was lost"
        if returned < due - 0.01 and name in other:
            assert fired == 0, f"{name}: edited {due - returned:.3f} s before a time that is not due any more"
    assert all(skipped(each) == (0, "") for each in history.schedules.values())
    assert_holds(history)


@pytest.mark.waits(100)
async def test_a_payload_that_is_edited_after_the_create_is_that_of_the_next_run(rig: Rig) -> None:
    """Edited between fire and dispatch, as one host is held and one frozen: the run keeps its own payload."""
    await rig.start_operators(1)
    await rig.start_hosts(2)
    deployments = [f"d-{number}" for number in range(8)]
    await install(rig, [schedule(each, version=1) for each in deployments])
    await until_shared(rig, deployments)
    due = minute_after(rig, 4)
    await until_time(rig, due - 2)
    rig.arm("host-1", "before:attempt-begun", "wait")
    rig.freeze("host-2")
    await until_fired(rig, deployments, due, within=due + 20 - rig.now())
    await asyncio.gather(*(rig.host("host-1").apply(schedule(each, version=2)) for each in deployments))
    rig.thaw("host-2")
    await rig.reached("host-1", "before:attempt-begun", within=20)
    rig.release("host-1", "before:attempt-begun")
    await until_fired(rig, deployments, due + MINUTE, within=due + MINUTE + 20 - rig.now())
    history = await rig.collect()
    for at, version in ((due, 1), (due + MINUTE, 2)):
        assert_fired(history, deployments, at, within=15)
        for each in deployments:
            calls = calls_of(history, run_name(each, at))
            assert calls
            assert all(call.payload == {"version": version} for call in calls), (each, calls)
    held = [call.begun for call in first_calls(history).values() if call.payload == {"version": 1}]
    applied = [c.returned or 0.0 for c in history.commands if c.op == "apply"]
    assert max(held) > max(applied), "no run was dispatched after the edit, so that nothing was shown"
    assert {write.by for write in history.writes if write.resource == labels.SCHEDULE_PLURAL} >= {"host-1"}
    assert_holds(history)
