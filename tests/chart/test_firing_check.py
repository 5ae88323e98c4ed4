"""What `helm test` runs, with the rights that the chart gives it, against real operators."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_operator import firing_check
from tests.apiserver.operator.scenery import bind_role, eventually, process, put_provider
from tests.chart.helm import RELEASE, Helm, Object, named
from tools.controlplane import Cluster

pytestmark = [pytest.mark.chart, pytest.mark.timeout(240), pytest.mark.usefixtures("crds_installed")]

ACCOUNT = f"{RELEASE}-test"


@dataclass(frozen=True)
class Case:
    """What is there, and how the test has to end."""

    operator: bool
    provider: bool
    arguments: tuple[str, ...]
    code: int
    told: str
    ended: bool = False
    """Whether it is told to end once its schedule is there, as by the deadline of its pod."""


CASES: Mapping[str, Case] = {
    # A provider's Lease alone gets the run; it stays, as nobody dispatches it.
    "AstraBox": Case(True, True, ("--require-astrabox",), 0, "was created, "),
    "nobody": Case(True, False, (), 0, "skipped, because no AstraBox process is there: start AstraBox"),
    "nobody, but required": Case(
        True,
        False,
        ("--require-astrabox",),
        1,
        "FAILED: the due time was skipped, because no AstraBox process is there: set ASTRABOX_SCHEDULER_PROV",
    ),
    "ended from outside": Case(True, False, (), 1, "FAILED: ended from outside", ended=True),
    "no operator": Case(False, False, (), 1, "FAILED: no operator holds a Lease: look at the log"),
}


async def test_it_tells_what_the_operators_make_of_a_due_time(
    control_plane: Cluster, newest_helm: Helm
) -> None:
    """All cases at once: each of them waits for the next minute, and for what comes of it."""
    with contextlib.ExitStack() as stack:
        async with asyncio.TaskGroup() as group:
            tasks = {}
            for name, case in CASES.items():
                namespace = stack.enter_context(fresh_namespace(control_plane))
                objects = newest_helm.render(namespace=namespace)
                tasks[name] = group.create_task(played(control_plane, namespace, objects, case), name=name)
        for name, case in CASES.items():
            code, output = tasks[name].result()
            assert (code, case.told in output) == (case.code, True), f"{name}: {code}, {output}"


@contextlib.contextmanager
def fresh_namespace(cluster: Cluster) -> Iterator[str]:
    name = cluster.create_namespace(f"firing-{secrets.token_hex(4)}")
    try:
        yield name
    finally:
        cluster.discard_namespace(name)


async def played(cluster: Cluster, namespace: str, objects: list[Object], case: Case) -> tuple[int, str]:
    """Exit code and output of the test; it leaves nothing behind."""
    kubeconfig = cluster.service_account_kubeconfig(namespace, ACCOUNT)
    for kind in ("Role", "RoleBinding"):
        cluster.kubectl("apply", "-f", "-", input=json.dumps(named(objects, kind, ACCOUNT)))
    api = await open_api(ConnectSettings(kubeconfig=str(cluster.kubeconfig)), namespace)
    try:
        async with contextlib.AsyncExitStack() as stack:
            if case.provider:
                await put_provider(api)
            if case.operator:
                operator = cluster.service_account_kubeconfig(namespace, "operator")
                bind_role(cluster, namespace)
                await stack.enter_async_context(process(operator, namespace))
                await eventually(lambda: holds_a_lease(api), within=90.0)
            ended = await run(kubeconfig, case)
        assert not (await api.schedules.list()).items
        assert not await api.runs.list_unfinished_metadata()
    finally:
        await api.aclose()
    return ended


async def run(kubeconfig: Path, case: Case) -> tuple[int, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-W", "error", "-m", firing_check.__name__, *case.arguments,
        env=os.environ | {"KUBECONFIG": str(kubeconfig)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output = b""
    try:
        if case.ended:
            assert child.stdout is not None
            while b" is due at " not in output:
                line = await child.stdout.readline()
                assert line, output.decode()
                output += line
            child.terminate()
        output += (await child.communicate())[0]
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert child.returncode is not None
    return child.returncode, output.decode()


async def holds_a_lease(api: SchedulerApi) -> bool:
    return any(lease.role == "operator" for lease in await api.leases.list())
