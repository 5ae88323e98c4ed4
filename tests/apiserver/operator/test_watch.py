"""The watch alone, on a real API server."""

import asyncio
from pathlib import Path

import pytest

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_client.errors import AccessDenied, ConnectError
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.permissions import OPERATOR_PERMISSIONS
from astrabox_scheduler_operator import watch
from astrabox_scheduler_operator.watch import Change, ScheduleWatch
from tests.apiserver.operator.scenery import bind_role, change, eventually, operator_with, put_schedule
from tools.controlplane import Cluster

# kopf ends its event loop before its TLS connections have said good-bye; they are collected here, not
# in some later test.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.usefixtures("collected"),
]


@pytest.mark.parametrize("server_timeout", [1, watch.SERVER_TIMEOUT_SECONDS])
async def test_every_change_comes_when_a_stream_is_over_too(
    api: SchedulerApi,
    admin_kubeconfig: Path,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    server_timeout: int,
) -> None:
    """WA-01, WA-07, OO-04: created before and after the start, edited and deleted; streams that end go on."""
    monkeypatch.setattr(watch, "SERVER_TIMEOUT_SECONDS", server_timeout)
    seen: list[tuple[str, str, int | None]] = []

    def receive(change: Change) -> None:
        seen.append((change.kind, change.metadata.name, change.metadata.generation))

    await put_schedule(api, "before")
    watching = ScheduleWatch(ConnectSettings(kubeconfig=str(admin_kubeconfig)), namespace, receive)
    watching.start()

    async def came(*what: tuple[str, str, int]) -> None:
        async def all_there() -> bool:
            assert not watching.ended.is_set()
            return set(what) <= set(seen)

        await eventually(all_there)

    try:
        await came(("there", "before", 1))
        for number in range(3):
            await put_schedule(api, f"s{number}")
            await change(api, f"s{number}", cron="0 0 1 1 *")
            await came(("there", f"s{number}", 2))
            await asyncio.sleep(server_timeout if server_timeout == 1 else 0)
        await api.schedules.delete("before")

        async def gone() -> bool:
            return any(kind == "gone" and name == "before" for kind, name, _ in seen)

        await eventually(gone)
    finally:
        await watching.stop(10)
    assert watching.ended.is_set()


async def test_a_user_without_a_name_can_watch(
    api: SchedulerApi, admin_kubeconfig: Path, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod runs under a number that no /etc/passwd has."""

    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr("getpass.getuser", nameless)
    seen: list[str] = []
    await put_schedule(api, "a")
    watching = ScheduleWatch(
        ConnectSettings(kubeconfig=str(admin_kubeconfig)),
        namespace,
        lambda change: seen.append(change.metadata.name),
    )
    watching.start()

    async def came() -> bool:
        assert not watching.ended.is_set()
        return seen == ["a"]

    try:
        await eventually(came)
    finally:
        await watching.stop(10)


async def test_a_watch_that_is_refused_ends(
    control_plane: Cluster,
    api: SchedulerApi,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """WA-03: never alive and blind: the owner is told by what, and ends the process."""
    settings = watch.watch_settings()
    settings.networking.error_backoffs = (0.1,)
    monkeypatch.setattr(watch, "watch_settings", lambda: settings)
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    few = tuple(each for each in OPERATOR_PERMISSIONS if each.verb not in ("watch", "list"))
    bind_role(control_plane, namespace, few)
    watching = ScheduleWatch(ConnectSettings(kubeconfig=str(kubeconfig)), namespace, lambda _: None)
    watching.start()
    try:
        async with asyncio.timeout(60):
            await watching.ended.wait()
    finally:
        await watching.stop(10)
    assert isinstance(watching.refused, AccessDenied)
    assert 'cannot list resource "deploymentschedules"' in str(watching.refused)
    assert not [record for record in caplog.records if "has ended" in record.getMessage()], "no traceback"


async def test_an_operator_that_loses_its_rights_ends_with_what_gives_them_back(
    control_plane: Cluster,
    api: SchedulerApi,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """WA-03, IN-06: not with a trace that names neither the right nor the value of the chart."""
    settings = watch.watch_settings()
    settings.networking.error_backoffs = (0.1,)
    settings.watching.server_timeout = 1
    monkeypatch.setattr(watch, "watch_settings", lambda: settings)
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    operator = await operator_with(kubeconfig, namespace)
    try:
        running = asyncio.create_task(operator.run(asyncio.Event()))

        async def ready() -> bool:
            assert not running.done()
            return not operator.ready()

        await eventually(ready)
        few = tuple(each for each in OPERATOR_PERMISSIONS if each.resource != labels.SCHEDULE_PLURAL)
        bind_role(control_plane, namespace, few)
        with pytest.raises(ConnectError) as raised:
            async with asyncio.timeout(60):
                await running
    finally:
        await operator._api.aclose()
    told = str(raised.value)
    assert told.startswith("the schedules cannot be watched: GET /apis/scheduler.astrabox.io/v1/namespaces/")
    assert 'resource "deploymentschedules"' in told
    assert "rbac.create=true" in told
