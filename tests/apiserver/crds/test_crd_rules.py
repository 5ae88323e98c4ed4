"""Each rule of the CRDs on a real API server: one object that it accepts, one that it refuses.

The models enforce neither CEL nor OpenAPI; only the API server does.
"""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_client.errors import ApiError, Invalid, TooLarge
from astrabox_scheduler_crds.crd import RUN_RULES, SCHEDULE_RULES
from astrabox_scheduler_crds.labels import API_VERSION, RUN_KIND, RUN_PLURAL, SCHEDULE_KIND, SCHEDULE_PLURAL
from astrabox_scheduler_crds.run import Phase
from astrabox_scheduler_crds.schedule import MAX_EARLIER_RULES

Patch = Mapping[str, Any]


@pytest.fixture
async def api(crds_installed: None, admin_kubeconfig: Path, namespace: str) -> AsyncIterator[SchedulerApi]:
    api = await open_api(ConnectSettings(kubeconfig=str(admin_kubeconfig)), namespace)
    yield api
    await api.aclose()


def runs_path(api: SchedulerApi) -> str:
    return f"/apis/{API_VERSION}/namespaces/{api.namespace}/{RUN_PLURAL}"


def schedules_path(api: SchedulerApi) -> str:
    return f"/apis/{API_VERSION}/namespaces/{api.namespace}/{SCHEDULE_PLURAL}"


async def create_run(api: SchedulerApi, name: str = "d-1", **spec: Any) -> str:
    body = {
        "apiVersion": API_VERSION,
        "kind": RUN_KIND,
        "metadata": {"name": name},
        "spec": {"deploymentId": "d", "payload": "{}", **spec},
    }
    await api.transport.request("POST", runs_path(api), body=json.dumps(body).encode())
    return name


async def create_schedule(api: SchedulerApi, **spec: Any) -> str:
    body = {
        "apiVersion": API_VERSION,
        "kind": SCHEDULE_KIND,
        "metadata": {"name": "d"},
        "spec": {"deploymentId": "d", "cron": "* * * * *", "timeZone": "UTC", "payload": "{}", **spec},
    }
    await api.transport.request("POST", schedules_path(api), body=json.dumps(body).encode())
    return "d"


async def patch(api: SchedulerApi, path: str, body: Patch) -> dict[str, Any]:
    answer = await api.transport.request(
        "PATCH", path, body=json.dumps(body).encode(), content_type="application/merge-patch+json"
    )
    value: dict[str, Any] = json.loads(answer)
    return value


async def refused(api: SchedulerApi, path: str, body: Patch, message: str) -> None:
    """The patch is refused for this rule and no other."""
    with pytest.raises(ApiError) as caught:
        await patch(api, path, body)
    assert isinstance(caught.value, Invalid)
    answer = await raw_answer(api, path, body)
    causes = [cause["message"] for cause in answer["details"]["causes"]]
    assert len(causes) == 1
    assert message in causes[0]


async def raw_answer(api: SchedulerApi, path: str, body: Patch) -> dict[str, Any]:
    """The API server's own words, which the client does not pass on."""
    connection = api.transport.connection
    headers = {"Content-Type": "application/merge-patch+json", **await connection.auth_headers()}
    url = f"{connection.base_url}{path}"
    async with connection.session.patch(url, data=json.dumps(body), headers=headers) as response:
        value: dict[str, Any] = await response.json()
        return value


DUE = "2026-10-25T00:00:00Z"
DUE_NAME = "d-20261025t0000z"

CREATES: list[tuple[str, bool, str, Patch]] = [
    ("manual", True, "d-1", {}),
    ("trigger schedule with its due time", True, DUE_NAME, {"trigger": "schedule", "dueTime": DUE}),
    ("trigger schedule without one", False, DUE_NAME, {"trigger": "schedule"}),
    ("manual with a due time", False, "d-1", {"trigger": "manual", "dueTime": DUE}),
    ("replay with its source", True, "d-1", {"trigger": "replay", "replayedFrom": "d-0"}),
    ("replay without one", False, "d-1", {"trigger": "replay"}),
    ("manual with a source", False, "d-1", {"replayedFrom": "d-0"}),
    ("name of another minute", False, "d-20261025t0001z", {"trigger": "schedule", "dueTime": DUE}),
    ("name of another hour", False, "d-20261025t0100z", {"trigger": "schedule", "dueTime": DUE}),
    ("name of another day", False, "d-20261024t0000z", {"trigger": "schedule", "dueTime": DUE}),
    ("name of another month", False, "d-20260925t0000z", {"trigger": "schedule", "dueTime": DUE}),
    ("name of another year", False, "d-20251025t0000z", {"trigger": "schedule", "dueTime": DUE}),
    ("scheduled with a free name", False, "d-1", {"trigger": "schedule", "dueTime": DUE}),
    ("due time with seconds", False, DUE_NAME, {"trigger": "schedule", "dueTime": "2026-10-25T00:00:01Z"}),
    ("manual with the name of a due time", False, DUE_NAME, {}),
    ("unknown trigger", False, "d-1", {"trigger": "cron"}),
    ("no deployment", False, "d-1", {"deploymentId": None}),
    ("payload that is no text", False, "d-1", {"payload": {"a": 1}}),
    ("payload too long", False, "d-1", {"payload": "x" * 1_000_001}),
]


@pytest.mark.parametrize(
    ("accepted", "name", "spec"), [case[1:] for case in CREATES], ids=[case[0] for case in CREATES]
)
async def test_creating_a_run(api: SchedulerApi, accepted: bool, name: str, spec: Patch) -> None:
    if accepted:
        await create_run(api, name, **spec)
        assert (await api.runs.get(name)).metadata.name == name
    else:
        with pytest.raises((Invalid, TooLarge)):
            await create_run(api, name, **spec)


async def test_a_run_is_born_queued_whatever_status_it_was_sent_with(api: SchedulerApi) -> None:
    """AL-09: a status in a create is dropped; what reads it sees Queued, and so do selectors."""
    body = {
        "apiVersion": API_VERSION,
        "kind": RUN_KIND,
        "metadata": {"name": "d-1"},
        "spec": {"deploymentId": "d", "payload": "{}"},
        "status": {"phase": "Succeeded", "sessionId": "s", "turnId": "t"},
    }
    await api.transport.request("POST", runs_path(api), body=json.dumps(body).encode())
    assert (await api.runs.get("d-1")).status.phase is Phase.QUEUED
    assert [meta.name for meta in await api.runs.list_unfinished_metadata()] == ["d-1"]


async def test_the_spec_of_a_run_is_immutable(api: SchedulerApi) -> None:
    path = f"{runs_path(api)}/{await create_run(api)}"
    await patch(api, path, {"metadata": {"labels": {"a": "b"}}})
    for change in ({"payload": "[]"}, {"deploymentId": "e"}, {"createdBy": {"identity": "x", "at": DUE}}):
        await refused(api, path, {"spec": change}, "spec is immutable")


RUNNING = {"phase": "Running", "attempts": 1, "startedAt": DUE}
STATUS_CASES: list[tuple[str, Patch, Patch, Patch]] = [
    ("status.sessionId is set once", {"sessionId": "s"}, {"sessionId": "s"}, {"sessionId": "s2"}),
    ("status.sessionId is set once", {"sessionId": "s"}, {"attempts": 2}, {"sessionId": None}),
    ("status.turnId is set once", {"turnId": "t"}, {"turnId": "t"}, {"turnId": None}),
    ("status.commandId is set once", {"commandId": "c"}, {"commandId": "c"}, {"commandId": "d"}),
    ("status.startedAt is set once", {}, {"startedAt": DUE}, {"startedAt": "2026-10-25T00:00:01Z"}),
    ("status.attempts never goes back", {"attempts": 3}, {"attempts": 4}, {"attempts": 3}),
    ("status.attempts never goes back", {}, {"attempts": 1}, {"attempts": None}),
    ("status.releases never goes back", {"releases": 3}, {"releases": 4}, {"releases": 3}),
    ("status.failures never goes back", {"failures": 3}, {"failures": 4}, {"failures": 3}),
    ("a run that was started is never Queued again", {}, {"phase": "Retrying"}, {"phase": "Queued"}),
    ("a run that was started is never Queued again", {}, {"phase": "Running"}, {"phase": None}),
    (
        "a run has Succeeded only with its sessionId and turnId",
        {"sessionId": "s"},
        {"attempts": 1},
        {"phase": "Succeeded"},
    ),
]


@pytest.mark.parametrize(("message", "before", "good", "bad"), STATUS_CASES)
async def test_a_status_goes_forward_only(
    api: SchedulerApi, message: str, before: Patch, good: Patch, bad: Patch
) -> None:
    path = f"{runs_path(api)}/{await create_run(api)}/status"
    await patch(api, path, {"status": {**RUNNING, **before}})
    await patch(api, path, {"status": good})
    await refused(api, path, {"status": bad}, message)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed", "Cancelled"])
async def test_a_finished_run_keeps_its_phase(api: SchedulerApi, phase: str) -> None:
    path = f"{runs_path(api)}/{await create_run(api)}/status"
    await patch(api, path, {"status": {**RUNNING, "sessionId": "s", "turnId": "t", "phase": phase}})
    await patch(api, path, {"status": {"lastError": "noted later"}})
    for other in {"Running", "Succeeded", "Failed", "Cancelled"} - {phase}:
        await refused(api, path, {"status": {"phase": other}}, "a finished run keeps its phase")


async def test_wiping_the_status_gets_around_no_rule(api: SchedulerApi) -> None:
    """A rule on .status itself would not be evaluated for `status: null`."""
    path = f"{runs_path(api)}/{await create_run(api)}/status"
    await patch(api, path, {"status": {**RUNNING, "sessionId": "s"}})
    with pytest.raises((Invalid, TooLarge)):
        await patch(api, path, {"status": None})
    assert (await api.runs.get("d-1")).status.session_id == "s"


EARLIER = {"cron": "* * * * *", "timeZone": "UTC", "activeSince": DUE, "activeUntil": DUE}
SCHEDULES: list[tuple[str, bool, Patch]] = [
    ("plain", True, {}),
    ("declared", True, {"activeSince": DUE, "enabled": False}),
    ("earlier rules", True, {"earlierRules": [EARLIER, EARLIER | {"disabled": True}]}),
    ("as many as there may be", True, {"earlierRules": [EARLIER] * MAX_EARLIER_RULES}),
    ("too many earlier rules", False, {"earlierRules": [EARLIER] * (MAX_EARLIER_RULES + 1)}),
    ("an earlier rule without its end", False, {"earlierRules": [EARLIER | {"activeUntil": None}]}),
    (
        "an earlier rule with a time that is none",
        False,
        {"earlierRules": [EARLIER | {"activeSince": "noon"}]},
    ),
    ("an earlier rule that is long", False, {"earlierRules": [EARLIER | {"cron": "*" * 257}]}),
    ("no cron", False, {"cron": None}),
    ("no zone", False, {"timeZone": None}),
    ("long cron", False, {"cron": "*" * 257}),
    ("long zone", False, {"timeZone": "x" * 65}),
    ("enabled as text", False, {"enabled": "yes"}),
    ("a time that is none", False, {"activeSince": "yesterday"}),
    ("long id", False, {"deploymentId": "x" * 1025}),
]


@pytest.mark.parametrize(
    ("accepted", "spec"), [case[1:] for case in SCHEDULES], ids=[c[0] for c in SCHEDULES]
)
async def test_creating_a_schedule(api: SchedulerApi, accepted: bool, spec: Patch) -> None:
    if accepted:
        await create_schedule(api, **spec)
    else:
        with pytest.raises((Invalid, TooLarge)):
            await create_schedule(api, **spec)


async def test_a_schedule_stays_with_its_deployment(api: SchedulerApi) -> None:
    path = f"{schedules_path(api)}/{await create_schedule(api)}"
    await patch(api, path, {"spec": {"cron": "0 0 * * *", "enabled": False}})
    await refused(api, path, {"spec": {"deploymentId": "e"}}, "spec.deploymentId is immutable")


async def test_the_last_due_time_is_not_forgotten(api: SchedulerApi) -> None:
    path = f"{schedules_path(api)}/{await create_schedule(api)}/status"
    await patch(api, path, {"status": {"lastDueTime": DUE}})
    await patch(api, path, {"status": {"lastDueTime": "2026-10-26T00:00:00Z"}})
    await refused(api, path, {"status": {"lastDueTime": None}}, "status.lastDueTime is never taken away")


def test_each_rule_has_its_test() -> None:
    source = Path(__file__).read_text()
    by_create = ("goes with trigger", "ends with its due time", "is kept for scheduled runs")
    for rule in (*RUN_RULES, *SCHEDULE_RULES):
        told = rule.message in source or any(part in rule.message for part in by_create)
        assert told or rule.message.startswith("spec is immutable"), rule.message


async def test_runs_are_found_by_the_fields_people_ask_for(api: SchedulerApi) -> None:
    await create_run(api, "d-1")
    await create_run(api, DUE_NAME, trigger="schedule", dueTime=DUE)
    await create_run(api, "e-1", deploymentId="e")

    async def names(selector: str) -> set[str]:
        answer = await api.transport.request("GET", runs_path(api), query={"fieldSelector": selector})
        return {item["metadata"]["name"] for item in json.loads(answer)["items"]}

    assert await names("spec.deploymentId=d") == {"d-1", DUE_NAME}
    assert await names("spec.trigger=schedule") == {DUE_NAME}
    assert await names("status.phase=Queued,spec.deploymentId=e") == {"e-1"}
    assert await names("status.phase!=Queued") == set()
