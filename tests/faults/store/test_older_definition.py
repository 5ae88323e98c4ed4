"""The CustomResourceDefinitions are those of another release, and are replaced under live objects."""

from __future__ import annotations

import json

import pytest

from astrabox.host_deployments import DeploymentRecords
from astrabox_scheduler_crds import labels
from tests.faults.history.check import assert_holds
from tests.faults.scenes.calls import assert_called_once, step_counts
from tests.faults.scenes.minutes import minute_after, until_time
from tests.faults.scenes.objects import create_object
from tests.faults.scenes.processes import host_lease, start
from tests.faults.scenes.runs import (
    BY_HAND,
    behaving,
    create_run,
    ended_as,
    enqueue,
    run_name,
    runs,
    until_phase,
)
from tests.faults.scenes.schedules import EVERY_MINUTE, apply_all, schedule
from tests.faults.stage.rig import Rig
from tests.faults.store.definitions import LATER_PHASE, NEWEST, installed, newer, older

pytestmark = [pytest.mark.faults, pytest.mark.own_plane, pytest.mark.timeout(290)]

LACKING = (
    "the CustomResourceDefinition deploymentschedules.scheduler.astrabox.io is older and lacks",
    "the CustomResourceDefinition runinvocations.scheduler.astrabox.io is older and lacks",
    "kubectl apply -f crds/manifests",
)


@pytest.mark.waits(90)
async def test_older_definitions_are_named_and_replaced_under_live_objects(rig: Rig) -> None:
    """IN-01, IN-08: both sides say what is lacking; once it is there, old objects go on."""
    async with installed(rig, older()):
        await rig.start_operator("operator-1", ready=False)
        await old_objects(rig)

        async def told() -> bool:
            code, text = await rig.health("operator-1", "readyz")
            return code == 503 and all(each in text for each in LACKING)

        await rig.until(told, 30, "the operator says what it lacks")
        await rig.start_host("host-1", ready=False)
        code = await rig.ended("host-1", within=60)
        said = rig.actors.said("host-1")
        assert code == 1
        for each in (*LACKING, *(path for paths in NEWEST.values() for path in paths)):
            assert each in said, each
    await rig.ready("operator-1")
    await rig.start_host("host-1")
    await until_phase(rig, ["old-run", "old-running"], "Succeeded", within=40)
    due = minute_after(rig, 3)
    await until_phase(rig, [run_name("old", due)], "Succeeded", within=due + 20 - rig.now())
    await rig.host("host-1").delete("old")
    history = await rig.collect()
    assert [life.name for life in history.lives if life.role == "operator"] == ["operator-1"], (
        "it was restarted"
    )
    assert ended_as(history, ["old-run", "old-running", run_name("old", due)]) == {"Succeeded": 3}
    assert step_counts(history, "old-running") == {"admit_turn": 1}
    assert_holds(history)


async def old_objects(rig: Rig) -> None:
    """Of the older release: a schedule, a run that nobody has taken, and one whose process was lost."""
    metadata = {"name": "old", "labels": {labels.DEPLOYMENT_LABEL: "old"}}
    spec = {"deploymentId": "old", "cron": EVERY_MINUTE, "timeZone": "UTC", "payload": '{"n":1}'}
    await create_object(rig, labels.SCHEDULE_KIND, metadata, spec)
    DeploymentRecords(rig.actors.deployments).put("old", schedule("old", n=1))
    await create_run(rig, "old-run", {})
    await create_run(rig, "old-running", {}, assignee="a-process-of-the-older-release")
    status = {
        "phase": "Running",
        "attempts": 1,
        "startedAt": "2026-01-01T00:00:00Z",
        "sessionId": "session-of-old",
    }
    await patch_status(rig, "old-running", status)


async def patch_status(rig: Rig, name: str, status: dict[str, object]) -> None:
    """As an administrator, or another release, writes it."""
    patch = json.dumps({"status": status})
    await rig.kubectl("patch", labels.RUN_PLURAL, name, "--subresource=status", "--type=merge", "-p", patch)


@pytest.mark.slow
@pytest.mark.waits(120)
async def test_definitions_change_under_live_processes(rig: Rig) -> None:
    """IN-01, IN-08: back to the older ones and forth: no restart, and each due time fires once."""
    await start(rig, operators=1, hosts=2)
    await apply_all(rig, "host-1", [schedule("d")])
    (slow,) = await enqueue(rig, "host-1", behaving(admit_turn="hang:20"))
    due = minute_after(rig, 10)
    await until_time(rig, due - 8)
    async with installed(rig, older()):
        (quick,) = await enqueue(rig, "host-2", {})
        await rig.host("host-1").apply(schedule("d", n=2))
        await until_phase(rig, [run_name("d", due)], "Succeeded", within=due + 20 - rig.now())
        await until_phase(rig, [quick, run_name("d", due)], "Succeeded", within=20)
    await until_phase(rig, [run_name("d", due + 60)], "Succeeded", within=due + 80 - rig.now())
    await rig.host("host-1").delete("d")
    history = await rig.collect()
    names = [slow, quick, run_name("d", due), run_name("d", due + 60)]
    assert ended_as(history, names) == {"Succeeded": 4}
    assert_called_once(history, names)
    assert len(history.lives) == 3, "a process was restarted"
    assert_holds(history)


async def test_phase_of_a_newer_release_is_left_alone(rig: Rig) -> None:
    """IN-08: a run in a phase that this release does not know is not dispatched, ended or pruned."""
    await start(rig, operators=1, hosts=2)
    mine = await host_lease(rig, "host-1")
    async with installed(rig, newer()):
        for name, assignee in (("parked", mine), ("parked-of-nobody", None)):
            await create_run(rig, name, behaving(start_session="hang:600"), assignee=assignee)
        await until_phase(rig, ["parked", "parked-of-nobody"], "Running", within=30)
        for name in ("parked", "parked-of-nobody"):
            await patch_status(rig, name, {"phase": LATER_PHASE})
        parked = {
            name: (await runs(rig))[name]["metadata"]["resourceVersion"]
            for name in ("parked", "parked-of-nobody")
        }
        await rig.kill("host-1")
        (after,) = await enqueue(rig, "host-2", {})
        await until_phase(rig, [after], "Succeeded", within=20)
        await until_time(rig, rig.now() + 30)  # a Lease runs out, and each sweep comes round
        found = await runs(rig)
        assert {name: found[name]["metadata"]["resourceVersion"] for name in parked} == parked
        rows = {row.run_id for row in await rig.host("host-2").list_runs(BY_HAND)}
        assert rows == set(parked)
        for name in parked:
            await rig.kubectl("delete", labels.RUN_PLURAL, name, "--wait=false")
    assert_holds(await rig.collect())
