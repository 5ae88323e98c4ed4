"""The main job with real pods: from the first apply to the delete, and over to the other host in between."""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta

import pytest

from astrabox.seams.scheduler import Schedule, ScheduledRun
from e2e.hosts import HandlerCall, HostPod
from e2e.release import Release
from e2e.waiting import now, until, wait_for, whole_minute

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

PAUSE_VISIBLE = timedelta(seconds=5)
PROMPT = {"agent": "reporter", "prompt": "Summarise yesterday", "temperature": 1.0}
GOOD_DAY = [
    ("start_session", "begin"),
    ("start_session", "end"),
    ("admit_turn", "begin"),
    ("admit_turn", "end"),
]


def completed(host: HostPod, deployment_id: str, run_id: str, within: float = 20) -> ScheduledRun:
    def found() -> ScheduledRun | None:
        runs = {run.run_id: run for run in host.list_runs(deployment_id)}
        return runs[run_id] if run_id in runs and runs[run_id].status == "completed" else None

    run = until(found, within, f"{run_id} is completed")
    assert run is not None
    return run


def calls_for(release: Release, run_id: str) -> list[HandlerCall]:
    return [call for call in release.calls() if call.run_id == run_id]


def scheduled_name(deployment_id: str, due: datetime) -> str:
    return f"{deployment_id}-{due:%Y%m%dt%H%Mz}"


def test_from_the_first_apply_to_the_delete(release: Release) -> None:
    one, other = release.hosts
    rule = Schedule("nightly", "* * * * *", "Europe/Berlin", True, PROMPT)
    one.apply(rule)
    due = whole_minute(now()) + timedelta(minutes=1)

    run = completed(other, "nightly", scheduled_name("nightly", due), within=80)
    assert (run.trigger, run.scheduled_for) == ("schedule", due)
    assert repr(run.payload["temperature"]) == "1.0"
    one.apply(dataclasses.replace(rule, payload={"prompt": "Edited"}))

    manual = completed(one, "nightly", other.enqueue("nightly", {"prompt": "Now"}).run_id)
    replay = other.enqueue("nightly", {}, trigger="replay", replayed_from_run_id=run.run_id)
    replay = completed(one, "nightly", replay.run_id)
    assert (manual.trigger, manual.scheduled_for, manual.payload) == ("manual", None, {"prompt": "Now"})
    assert (replay.trigger, replay.replayed_from_run_id, replay.payload) == ("replay", run.run_id, PROMPT)

    other.apply(dataclasses.replace(rule, enabled=False))
    paused = now() + PAUSE_VISIBLE
    wait_for(whole_minute(paused) + timedelta(minutes=1, seconds=5))
    late = [
        call
        for call in release.calls()
        if call.call == "start_session" and call.phase == "begin" and call.received > paused.timestamp()
    ]
    assert late == [], "nothing starts that long after a disable"
    assert release.kubectl("get", "dsched", "nightly", "-o", "jsonpath={.status.nextDueTime}") == ""

    history = one.list_runs("nightly")
    other.delete("nightly")
    assert one.list_runs("nightly") == other.list_runs("nightly") == history
    assert {each.run_id for each in history} >= {run.run_id, manual.run_id, replay.run_id}
    for each in history:
        calls = calls_for(release, each.run_id)
        assert [(call.call, call.phase) for call in calls] == GOOD_DAY
        assert {call.session_id for call in calls} - {None} == {each.session_id}


def test_a_run_whose_pod_is_killed_goes_on_in_another(release: Release) -> None:
    """Killed between the two calls: the Session is saved, and is not asked for again."""
    lost, other = release.hosts
    payload = {"behaviour": {"admit_turn": "hang:600", "host": lost.name}}
    run_id = lost.enqueue("cut-off", payload).run_id

    def hangs() -> list[HandlerCall]:
        return [call for call in calls_for(release, run_id) if call.call == "admit_turn"]

    (hanging,) = until(hangs, 20, "the first host admits the turn")
    release.kubectl("delete", "pod", lost.name, "--force", "--grace-period=0")
    done = completed(other, "cut-off", run_id, within=60)
    calls = calls_for(release, run_id)
    heir = calls[-1].host  # either the other one, or the pod that has taken the place of the first
    assert heir != lost.name
    assert [(call.host, call.call, call.phase) for call in calls] == [
        (lost.name, "start_session", "begin"),
        (lost.name, "start_session", "end"),
        (lost.name, "admit_turn", "begin"),
        (heir, "admit_turn", "begin"),
        (heir, "admit_turn", "end"),
    ]
    assert {call.session_id for call in calls[1:]} == {hanging.session_id} == {done.session_id}
    assert len(release.hosts) == 2, "another pod has taken the place of the one that was killed"
