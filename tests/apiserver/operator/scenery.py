"""Operators on a real API server: their parts in this process, or a process of their own."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp

from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.identity import new_identity
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.permissions import OPERATOR_PERMISSIONS, Permission, role_rules
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec
from astrabox_scheduler_operator.app import Operator
from astrabox_scheduler_operator.settings import PREFIX, Settings
from tools.controlplane import Cluster

MARKER = "the-payload-marker"


async def put_provider(
    api: SchedulerApi, name: str = "astrabox-1", since: timedelta = timedelta(hours=6)
) -> None:
    """A Lease of a provider that counts as live for an hour from its first sight."""
    now = api.clock.now().replace(microsecond=1)
    spec = LeaseSpec(
        holder_identity=name, lease_duration_seconds=3600, acquire_time=now - since, renew_time=now
    )
    metadata = ObjectMeta(name=name, labels={labels.ROLE_LABEL: "provider"})
    await api.leases.create(Lease(metadata=metadata, spec=spec))


async def put_schedule(api: SchedulerApi, name: str, **spec: Any) -> ObjectMeta:
    """A schedule; by default due every minute, and since two minutes ago."""
    fields: dict[str, Any] = {
        "deployment_id": name,
        "cron": "* * * * *",
        "time_zone": "UTC",
        "payload": json.dumps({"p": MARKER}),
        "active_since": api.clock.now() - timedelta(minutes=2),
    }
    metadata = ObjectMeta(name=name, labels={labels.DEPLOYMENT_LABEL: name})
    return await api.schedules.create(
        DeploymentSchedule(metadata=metadata, spec=ScheduleSpec(**(fields | spec)))
    )


async def change(api: SchedulerApi, name: str, **spec: Any) -> None:
    """Edit it as a provider does."""
    old = await api.schedules.get(name)
    await api.schedules.update(old.changed(spec=old.spec.changed(**spec)))


@asynccontextmanager
async def parts(kubeconfig: Path, namespace: str, **settings: str) -> AsyncIterator[Operator]:
    """An operator whose loops a test drives: its Lease is kept, nothing else runs."""
    operator = await operator_with(kubeconfig, namespace, **settings)
    try:
        await operator.keeper.start(30.0)
        await operator.attendance.refresh()
        yield operator
    finally:
        await operator.keeper.release()
        await operator._api.aclose()


async def operator_with(kubeconfig: Path, namespace: str, **settings: str) -> Operator:
    """One that was not started; its api is its own and is to be closed."""
    environment = {"KUBECONFIG": str(kubeconfig), "NAMESPACE": namespace} | settings
    read = Settings.from_environment({PREFIX + name: value for name, value in environment.items()})
    api = await open_api(read.connect, namespace, "operator")
    return Operator(read, api, new_identity("operator"))


async def see(operator: Operator) -> None:
    """What the watch would bring."""
    api = operator._api
    for item in (await api.schedules.list()).items:
        operator.index.upsert(item, api.clock.now())


def whole_minute(now: datetime, minutes: int = 0) -> datetime:
    return now.replace(second=0, microsecond=0) + timedelta(minutes=minutes)


def bind_role(
    cluster: Cluster,
    namespace: str,
    permissions: tuple[Permission, ...] = OPERATOR_PERMISSIONS,
    account: str = "operator",
) -> None:
    """A Role of exactly these rights, bound to the service account."""
    meta = {"name": account, "namespace": namespace}
    kind = "rbac.authorization.k8s.io/v1"
    role = {"apiVersion": kind, "kind": "Role", "metadata": meta, "rules": role_rules(permissions)}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": account}
    binding = {
        "apiVersion": kind,
        "kind": "RoleBinding",
        "metadata": meta,
        "roleRef": reference,
        "subjects": [subject],
    }
    for item in (role, binding):
        cluster.kubectl("apply", "-f", "-", input=json.dumps(item))


@dataclass
class Process:
    """`python -m astrabox_scheduler_operator`."""

    child: asyncio.subprocess.Process
    lines: list[str] = field(default_factory=list)
    port: int = 0

    async def read(self) -> None:
        """Collect its log, and the port of its health from it."""
        assert self.child.stderr is not None
        async for line in self.child.stderr:
            text = line.decode().rstrip("\n")
            self.lines.append(text)
            if "health is served" in text:
                self.port = int(re.findall(r'"port": (\d+)', text)[0])

    async def health(self, path: str) -> tuple[int, str]:
        """Status and text; 0 while nobody answers."""
        if not self.port:
            return 0, ""
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(5)) as session,
                session.get(f"http://127.0.0.1:{self.port}{path}") as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientError:
            return 0, ""

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end."""
        self.child.send_signal(number)
        async with asyncio.timeout(30):
            return await self.child.wait()

    def told(self, text: str) -> list[Mapping[str, Any]]:
        """The log's records whose line holds the text."""
        return [json.loads(line) for line in self.lines if text in line]


@asynccontextmanager
async def process(kubeconfig: Path, namespace: str, **settings: str) -> AsyncIterator[Process]:
    """The operator as a process of its own; killed at the end if it is still there."""
    chosen = {
        "KUBECONFIG": str(kubeconfig),
        "NAMESPACE": namespace,
        "HEALTH_PORT": "0",
        "HEALTH_HOST": "127.0.0.1",
        "LOG_LEVEL": "DEBUG",
    } | settings
    environment = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-m",
        "astrabox_scheduler_operator",
        env=environment | {PREFIX + name: value for name, value in chosen.items()},
        stderr=asyncio.subprocess.PIPE,
    )
    running = Process(child)
    reading = asyncio.create_task(running.read())
    try:
        yield running
    finally:
        if child.returncode is None:
            child.kill()
        await child.wait()
        await reading


async def eventually(question: Any, within: float = 30.0) -> None:
    """Ask again until the answer is true; nothing rests on how long it takes."""
    async with asyncio.timeout(within):
        while not await question():  # noqa: ASYNC110 - what is waited for happens in another process
            await asyncio.sleep(0.05)
