"""The point at which a watch would go on is too old (410): both sides list again and go on."""

from __future__ import annotations

import json

import pytest

from astrabox_scheduler_crds import labels
from tests.faults.history.check import assert_holds
from tests.faults.scenes.calls import assert_called_once
from tests.faults.scenes.minutes import minute_after, until_time
from tests.faults.scenes.processes import host_lease, start
from tests.faults.scenes.runs import create_run, ended_as, run_name, until_phase
from tests.faults.scenes.schedules import apply_all, delete_all, schedule
from tests.faults.stage.rig import Rig
from tests.faults.store.changes import AFTER, BEFORE, assert_changes_count, change_meanwhile

pytestmark = [pytest.mark.faults, pytest.mark.timeout(290)]


async def version_now(rig: Rig, plural: str) -> str:
    """Where a watch that begins now would go on."""
    found = json.loads(await rig.kubectl("get", "--raw", f"{_path(rig, plural)}?limit=1"))
    return str(found["metadata"]["resourceVersion"])


async def is_gone(rig: Rig, plural: str, version: str) -> bool:
    """Whether the API server refuses to go on from this version with 410."""
    query = f"watch=true&resourceVersion={version}&timeoutSeconds=2"
    text = await rig.kubectl("get", "--raw", f"{_path(rig, plural)}?{query}")
    first = json.loads(text.splitlines()[0]) if text.strip() else {}
    return first.get("type") == "ERROR" and first["object"]["code"] == 410


def _path(rig: Rig, plural: str) -> str:
    return f"/apis/{labels.API_VERSION}/namespaces/{rig.namespace}/{plural}"


@pytest.mark.own_plane
@pytest.mark.waits(100)
async def test_both_sides_list_again(rig: Rig) -> None:
    """WA-12, FI-14: cut off until 410 is the answer: what changed meanwhile is honoured, nothing is lost."""
    await start(rig, operators=1, hosts=2)
    await apply_all(rig, "host-2", [schedule(name) for name in BEFORE])
    mine = await host_lease(rig, "host-1")
    due = minute_after(rig, 14)
    await until_time(rig, due - 12)
    versions = {
        plural: await version_now(rig, plural) for plural in (labels.RUN_PLURAL, labels.SCHEDULE_PLURAL)
    }
    for process in ("operator-1", "host-1"):
        await rig.proxy(process).cut()
    await change_meanwhile(rig, "host-2")
    await create_run(rig, "by-hand", {}, assignee=mine)
    await rig.kill_apiserver()
    await rig.start_apiserver()
    for plural, version in versions.items():
        assert await is_gone(rig, plural, version), f"{plural} at {version}"
    for process in ("operator-1", "host-1"):
        await rig.proxy(process).mend()
    dues = [due, due + 60]
    wanted = [run_name(name, each) for name in AFTER for each in dues]
    await until_phase(rig, ["by-hand"], "Succeeded", within=40)
    await until_phase(rig, wanted, "Succeeded", within=due + 80 - rig.now())
    await delete_all(rig, "host-2", AFTER)
    history = await rig.collect()
    assert_changes_count(history, dues)
    assert ended_as(history, ["by-hand"]) == {"Succeeded": 1}
    assert_called_once(history, ["by-hand"])
    assert_holds(history)
