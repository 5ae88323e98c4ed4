"""The point at which a watch would go on is too old (410): both sides list again and go on."""

from __future__ import annotations

import json

import pytest

from astrabox_scheduler_crds import labels
from tests.faults.history.check import assert_holds
from tests.faults.stage.rig import Rig
from tests.faults.store.scenes import (
    apply_all,
    calls,
    create_run,
    ends,
    lease_of,
    minutely,
    next_due,
    run_at,
    start,
    until_phase,
    until_time,
)

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


async def test_both_sides_list_again(rig: Rig) -> None:
    """WA-12, FI-14: cut off until 410 is the answer: what changed meanwhile is honoured, nothing is lost."""
    await start(rig, operators=1, hosts=2)
    await apply_all(rig, "host-2", [minutely(name) for name in ("steady", "off", "gone", "edited")])
    mine = await lease_of(rig, "host-1")
    due = next_due(rig, 14)
    await until_time(rig, due - 12)
    versions = {
        plural: await version_now(rig, plural) for plural in (labels.RUN_PLURAL, labels.SCHEDULE_PLURAL)
    }
    for process in ("operator-1", "host-1"):
        await rig.proxy(process).cut()
    door = rig.host("host-2")
    await door.apply(minutely("off", enabled=False))
    await door.delete("gone")
    await door.apply(minutely("fresh"))
    await door.apply(minutely("edited", {"n": 2}))
    await create_run(rig, "by-hand", {}, assignee=mine)
    await rig.kill_apiserver()
    await rig.start_apiserver()
    for plural, version in versions.items():
        assert await is_gone(rig, plural, version), f"{plural} at {version}"
    for process in ("operator-1", "host-1"):
        await rig.proxy(process).mend()
    wanted = [run_at(name, each) for name in ("steady", "fresh", "edited") for each in (due, due + 60)]
    await until_phase(rig, ["by-hand"], {"Succeeded"}, within=40)
    await until_phase(rig, wanted, {"Succeeded"}, within=due + 80 - rig.now())
    for name in ("steady", "fresh", "edited"):
        await door.delete(name)
    history = await rig.collect()
    assert ends(history, [*wanted, "by-hand"]) == {"Succeeded": 7}
    for name in (*wanted, "by-hand"):
        assert calls(history, name) == {"start_session": 1, "admit_turn": 1}, name
    for each in (due, due + 60):
        assert history.runs[run_at("edited", each)]["spec"]["payload"] == '{"n":2}'
        assert not {run_at("off", each), run_at("gone", each)} & history.runs.keys()
    assert_holds(history)
