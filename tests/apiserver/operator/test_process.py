"""The operator as a process, with the rights of its Role and nothing more."""

import asyncio
import json
import signal
import socket
from datetime import timedelta
from functools import partial

import pytest

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.errors import NotFound
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.permissions import OPERATOR_PERMISSIONS
from astrabox_scheduler_crds.run import RunInvocation
from tests.apiserver.operator.scenery import (
    MARKER,
    Process,
    bind_role,
    change,
    eventually,
    process,
    put_provider,
    put_schedule,
)
from tools.controlplane import Cluster


async def test_a_process_with_a_role_fires_reports_and_ends(
    control_plane: Cluster, api: SchedulerApi, namespace: str
) -> None:
    """IN-05, IN-06, AL-08, AL-09, OB-02, OB-05, TZ-08, CC-09: the life of one operator in a namespace."""
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    await put_provider(api)
    await put_schedule(api, "good", cron="*/2 * * * *", active_since=api.clock.now() - timedelta(minutes=30))
    await put_schedule(api, "mars", time_zone="Mars/Olympus")
    await put_schedule(api, "never", cron="0 0 31 2 *")
    async with process(kubeconfig, namespace) as operator:
        runs = await fired_and_reported(api)
        columns_tell(control_plane, namespace)
        await eventually(partial(refused, api, {"mars": ["InvalidZone"], "never": ["InvalidCron"]}))
        await follows_edits(control_plane, api, namespace)
        nothing_is_left_on_objects(control_plane, namespace)
        told = [("good", "DueTimesSkipped"), ("mars", "InvalidZone"), ("never", "InvalidCron")]
        await eventually(partial(events_are, control_plane, namespace, told))
        await is_healthy(operator)
        await api.schedules.delete("good")
        await eventually(partial(gone, api, "good"))
        assert await operator.stop() == 0
    assert operator.told("HTTP 403") == []
    assert operator.told("forbidden") == []
    assert MARKER not in "\n".join(operator.lines)
    assert operator.told('"message": "ended"')
    left = await api.runs.list_for_deployment("good")
    assert len(left) == len(runs), "RT-06: history outlives the schedule"
    (lease,) = (each for each in await api.leases.list() if each.role == "operator")
    assert lease.released


async def fired_and_reported(api: SchedulerApi) -> list[RunInvocation]:
    async def fired() -> bool:
        return len(await api.runs.list_for_deployment("good")) >= 5

    async def reported() -> bool:
        status = (await api.schedules.get("good")).status
        return status.last_due_time is not None and status.skipped is not None

    await eventually(fired)
    await eventually(reported)
    runs = await api.runs.list_for_deployment("good")
    for run in runs:
        assert run.metadata.labels == {labels.DEPLOYMENT_LABEL: "good", labels.ASSIGNEE_LABEL: "astrabox-1"}
        assert run.status.phase == "Queued"
        assert run.spec.created_by is not None
        assert run.spec.created_by.schedule_generation == 1
    return runs


def columns_tell(cluster: Cluster, namespace: str) -> None:
    """What was skipped shows without `-o wide`, and when a run began with it."""
    schedules = cluster.kubectl("get", "dsched", "-n", namespace).splitlines()
    (good,) = (line for line in schedules if line.startswith("good "))
    begin = schedules[0].index("SKIPPED")
    assert int(good[begin : schedules[0].index("AGE")]) > 0
    runs = cluster.kubectl("get", "runinv", "-n", namespace, "-o", "wide")
    assert "STARTED" in runs.splitlines()[0]


async def refused(api: SchedulerApi, expected: dict[str, list[str]]) -> bool:
    conditions = {name: (await api.schedules.get(name)).status.conditions for name in expected}
    return expected == {
        name: [each.reason for each in found if each.type == "Ready"] for name, found in conditions.items()
    }


async def follows_edits(cluster: Cluster, api: SchedulerApi, namespace: str) -> None:
    async def shown() -> bool:
        columns = "jsonpath={.status.nextDueTime}"
        text = cluster.kubectl("get", "dsched", "good", "-n", namespace, "-o", columns)
        return text == "2028-02-29T03:17:00Z"

    async def suspended() -> bool:
        status = (await api.schedules.get("good")).status
        return status.next_due_time is None and status.observed_generation == 3

    await change(api, "good", cron="17 3 29 2 *")
    await eventually(shown)
    await change(api, "good", enabled=False)
    await eventually(suspended)


def nothing_is_left_on_objects(cluster: Cluster, namespace: str) -> None:
    listed = json.loads(cluster.kubectl("get", "dsched,runinv", "-n", namespace, "-o", "json"))
    for item in listed["items"]:
        assert not {"finalizers", "annotations", "ownerReferences"} & item["metadata"].keys()


async def events_are(cluster: Cluster, namespace: str, expected: list[tuple[str, str]]) -> bool:
    listed = cluster.kubectl("get", "events.events.k8s.io", "-n", namespace, "-o", "json")
    assert MARKER not in listed
    return sorted((e["regarding"]["name"], e["reason"]) for e in json.loads(listed)["items"]) == expected


async def is_healthy(operator: Process) -> None:
    assert await operator.health("/healthz") == (200, "ok\n")
    assert await operator.health("/readyz") == (200, "ok\n")
    status, metrics = await operator.health("/metrics")
    assert status == 200
    assert 'schedules{state="refused"} 2.0' in metrics
    assert "good" not in metrics
    assert "watch_stale_total 0.0" in metrics, "every change came through the watch"


async def gone(api: SchedulerApi, name: str) -> bool:
    try:
        await api.schedules.get(name)
    except NotFound:
        return True
    return False


async def test_labels_set_while_a_process_stands_still_repeat_nothing(
    control_plane: Cluster, api: SchedulerApi, namespace: str
) -> None:
    """RE-09: a change of labels in the middle of the work fires, reports and skips nothing again."""
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    await put_provider(api)
    await put_schedule(api, "a", cron="*/2 * * * *", active_since=api.clock.now() - timedelta(minutes=30))

    async def fired() -> bool:
        return bool(await api.runs.list_for_deployment("a"))

    async def reported() -> bool:
        status = (await api.schedules.get("a")).status
        return status.last_due_time is not None and status.skipped is not None

    async with process(kubeconfig, namespace) as operator:
        await eventually(fired)
        operator.child.send_signal(signal.SIGSTOP)
        for number in range(5):
            control_plane.kubectl("label", "dsched", "a", "-n", namespace, f"team=t{number}", "--overwrite")
        await asyncio.sleep(3)  # the situation is a handler that takes so long
        operator.child.send_signal(signal.SIGCONT)
        await eventually(reported)
        before = (await api.schedules.get("a")).status.skipped
        for number in range(5):
            control_plane.kubectl("label", "dsched", "a", "-n", namespace, f"owner=o{number}", "--overwrite")
        await eventually(partial(events_are, control_plane, namespace, [("a", "DueTimesSkipped")]))
        assert await operator.stop() == 0
    schedule, runs = await api.schedules.get("a"), await api.runs.list_for_deployment("a")
    dues = [run.spec.due_time for run in runs]
    assert len(set(dues)) == len(dues), "each due time once"
    assert schedule.status.skipped == before, "what was skipped is counted once"
    assert schedule.status.last_due_time == max(due for due in dues if due is not None)
    assert {"team": "t4", "owner": "o4"}.items() <= schedule.metadata.labels.items()


@pytest.mark.parametrize("enabled", [False, True])
async def test_objects_that_cannot_be_read_keep_no_process_from_firing(
    control_plane: Cluster, api: SchedulerApi, namespace: str, *, enabled: bool
) -> None:
    """CC-09, WA-14: times that the API server alone takes; a restarted operator fires all the same."""
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    await put_provider(api)
    await put_schedule(api, "good")
    times = ("0000-01-01T00:00:00Z", "2026-06-01T00:00:00+24:00", "9999-12-31T23:59:59-23:59")
    for number, since in enumerate(times):
        name = f"odd-{number}"
        spec = {"deploymentId": name, "cron": "* * * * *", "timeZone": "UTC", "payload": "{}"}
        body = {
            "apiVersion": labels.API_VERSION,
            "kind": labels.SCHEDULE_KIND,
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec | {"enabled": enabled, "activeSince": since},
        }
        control_plane.kubectl("create", "-f", "-", input=json.dumps(body))
    async with process(kubeconfig, namespace) as operator:

        async def fired() -> bool:
            return len(await api.runs.list_for_deployment("good")) >= 2

        await eventually(fired)
        told = [(f"odd-{number}", "Unreadable") for number in range(len(times))]
        await eventually(partial(events_are, control_plane, namespace, told))
        assert await operator.health("/healthz") == (200, "ok\n")
        assert await operator.health("/readyz") == (200, "ok\n")
        assert await operator.stop() == 0


async def test_a_process_waits_for_its_rights_and_then_starts(
    control_plane: Cluster, api: SchedulerApi, namespace: str
) -> None:
    """IN-06, IN-01: what is missing is said once, in one line; readiness fails until it is there."""
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    few = tuple(each for each in OPERATOR_PERMISSIONS if each.verb != "delete")
    bind_role(control_plane, namespace, few)
    await put_provider(api)
    await put_schedule(api, "a")
    async with process(kubeconfig, namespace) as operator:

        async def waiting() -> bool:
            return "delete runinvocations" in (await operator.health("/readyz"))[1]

        await eventually(waiting)
        assert (await operator.health("/healthz"))[0] == 200
        bind_role(control_plane, namespace)

        async def fired() -> bool:
            return bool(await api.runs.list_for_deployment("a"))

        await eventually(fired)
        assert len(operator.told("waiting: permissions")) == 1
        assert await operator.stop(signal.SIGINT) == 0


async def test_a_process_that_cannot_go_on_ends_with_a_code(
    control_plane: Cluster, api: SchedulerApi, namespace: str
) -> None:
    """WA-03: never alive and blind: without rights for the watch it ends, or says what it waits for."""
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    async with process(kubeconfig, namespace, HEALTH_HOST="no.such.host.invalid") as operator:
        async with asyncio.timeout(30):
            assert await operator.child.wait() == 1
    assert operator.told("the operator ends")


async def test_a_namespace_that_is_not_there_is_told(control_plane: Cluster) -> None:
    """Only an administrator gets so far: a Role is in the namespace. Lists are empty, a create is refused."""
    async with process(control_plane.kubeconfig, "nope") as operator:
        async with asyncio.timeout(30):
            assert await operator.child.wait() == 1
    (told,) = operator.told("the operator ends")
    hint = "create it, or set ASTRABOX_SCHEDULER_OPERATOR_NAMESPACE"
    assert told["message"] == f"the operator ends: the namespace nope does not exist: {hint}"


async def test_a_port_that_is_taken_is_told(
    control_plane: Cluster, api: SchedulerApi, namespace: str
) -> None:
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        async with process(kubeconfig, namespace, HEALTH_PORT=port) as operator:
            async with asyncio.timeout(30):
                assert await operator.child.wait() == 1
    (told,) = operator.told("the operator ends")
    assert f"127.0.0.1:{port} cannot be listened at" in told["message"]
    assert "set ASTRABOX_SCHEDULER_OPERATOR_HEALTH_PORT to a free port" in told["message"]


@pytest.mark.parametrize("count", [500])
async def test_a_restart_with_many_schedules_is_one_loop_and_one_queue(
    control_plane: Cluster, api: SchedulerApi, namespace: str, count: int
) -> None:
    """WA-14, FI-11: 500 schedules due at the start: all fired, in one burst, health good."""
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    await put_provider(api)
    since = api.clock.now().replace(second=0, microsecond=0) - timedelta(seconds=30)
    due = since + timedelta(seconds=30)
    gate = asyncio.Semaphore(16)

    async def put(number: int) -> None:
        async with gate:
            await put_schedule(api, f"s{number}", cron=f"{due.minute} * * * *", active_since=since)

    await asyncio.gather(*(put(number) for number in range(count)))
    async with process(kubeconfig, namespace, LOG_LEVEL="INFO") as operator:

        async def fired() -> bool:
            return len(await api.runs.list_unfinished_metadata()) == count

        await eventually(fired, within=60)
        assert (await operator.health("/healthz"))[0] == 200
        assert await operator.stop() == 0
