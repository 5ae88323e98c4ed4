"""The script of `helm test`, with the rights that the chart gives it, against real operators."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.connect import ConnectSettings
from tests.apiserver.operator.scenery import bind_role, eventually, process, put_provider
from tests.chart.helm import RELEASE, Helm, named
from tools.controlplane import Cluster
from tools.generated.chart import CHART

pytestmark = [
    pytest.mark.chart,
    pytest.mark.slow,
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("crds_installed"),
]

SCRIPT = CHART / "files" / "firing_test.py"
ACCOUNT = f"{RELEASE}-test"


@pytest.fixture
def account(control_plane: Cluster, newest_helm: Helm, namespace: str) -> Path:
    """Kubeconfig of the test's account with the Role that the chart renders."""
    kubeconfig = control_plane.service_account_kubeconfig(namespace, ACCOUNT)
    objects = newest_helm.render(namespace=namespace)
    for kind in ("Role", "RoleBinding"):
        control_plane.kubectl("apply", "-f", "-", input=json.dumps(named(objects, kind, ACCOUNT)))
    return kubeconfig


async def run(kubeconfig: Path) -> tuple[int, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", str(SCRIPT),
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = await child.communicate()
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode is not None
    return child.returncode, output.decode()


@pytest.mark.parametrize("provider", [True, False], ids=["provider", "nobody"])
async def test_it_tells_what_the_operators_make_of_a_due_time(
    control_plane: Cluster, account: Path, namespace: str, provider: bool
) -> None:
    """A provider's Lease alone gets the run; it stays as nobody dispatches it."""
    operator = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    api = await open_api(ConnectSettings(kubeconfig=str(control_plane.kubeconfig)), namespace)
    try:
        if provider:
            await put_provider(api)
        async with process(operator, namespace):
            await eventually(lambda: holds_a_lease(api))
            code, output = await run(account)
        assert code == 0, output
        told = "was created, " if provider else "skipped, because no AstraBox process is there"
        assert told in output
        assert not (await api.schedules.list()).items
        assert not await api.runs.list_unfinished_metadata()
    finally:
        await api.aclose()


async def holds_a_lease(api: SchedulerApi) -> bool:
    return any(lease.role == "operator" for lease in await api.leases.list())


async def test_without_an_operator_it_fails_and_says_where_to_look(account: Path) -> None:
    code, output = await run(account)
    assert code == 1
    assert "FAILED: no operator holds a Lease: look at the log" in output
