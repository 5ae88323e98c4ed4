"""Ten thousand schedules due in one minute, fired by one operator process, with figures."""

import asyncio
import re
import sys
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_crds import labels
from tests.apiserver.operator.scenery import (
    Process,
    bind_role,
    eventually,
    process,
    put_provider,
    put_schedule,
    whole_minute,
)
from tools.controlplane import Cluster

SCHEDULES = 10_000
LOADED_WITHIN = 120.0
FIRED_WITHIN = 120.0
REPORTED_WITHIN = 300.0


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_ten_thousand_schedules_in_one_minute(
    control_plane: Cluster, crds_installed: None, admin_kubeconfig: Path, namespace: str
) -> None:
    """FI-09, FI-11, WA-14, WA-15: every run created, none twice, and health is good the whole time."""
    api = await open_api(ConnectSettings(kubeconfig=str(admin_kubeconfig)), namespace, timeout=60.0)
    await api.discovery.published_schema()
    await put_provider(api)
    due = whole_minute(api.clock.now(), 3)
    began = time.monotonic()
    await _create(api, due.hour, due.minute)
    say(f"created {SCHEDULES} schedules in {time.monotonic() - began:.1f} s")
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    try:
        async with process(kubeconfig, namespace, LOG_LEVEL="INFO") as operator:
            began = time.monotonic()
            await eventually(lambda: _ok(operator, "/readyz"), LOADED_WITHIN)
            say(f"loaded in {time.monotonic() - began:.1f} s, {memory(operator)}")
            assert api.clock.now() < due, "this machine is too slow for the lead time of this test"
            await _fires(api, operator, due)
            assert await operator.stop() == 0
    finally:
        await api.aclose()


async def _fires(api: SchedulerApi, operator: Process, due: datetime) -> None:
    bad: list[tuple[int, str]] = []
    watching = asyncio.create_task(_watch_health(operator, bad))
    try:
        while api.clock.now() < due:  # noqa: ASYNC110 - it is time that is waited for
            await asyncio.sleep(0.5)
        began = time.monotonic()

        async def all_there() -> bool:
            await asyncio.sleep(2)
            metrics = (await operator.health("/metrics"))[1]
            return sample(metrics, "fired_total") >= SCHEDULES

        await eventually(all_there, FIRED_WITHIN)
        say(f"fired within {time.monotonic() - began:.0f} s, {memory(operator)}")
        runs = await api.runs.list_unfinished_metadata()
        assert len(runs) == SCHEDULES
        assert len({run.labels[labels.DEPLOYMENT_LABEL] for run in runs}) == SCHEDULES

        async def reported() -> bool:
            await asyncio.sleep(2)
            metrics = (await operator.health("/metrics"))[1]
            return sample(metrics, "status_writes_total") >= 2 * SCHEDULES

        await eventually(reported, REPORTED_WITHIN)
        say(f"every status written within {time.monotonic() - began:.0f} s, {memory(operator)}")
        metrics = (await operator.health("/metrics"))[1]
        for line in re.findall(
            r"lateness_seconds_bucket.*|watch_stale_total .*|confirm_reads_total .*", metrics
        ):
            say(line)
    finally:
        watching.cancel()
        await asyncio.wait({watching})
    assert bad == []


async def _create(api: SchedulerApi, hour: int, minute: int) -> None:
    numbers = iter(range(SCHEDULES))
    since = api.clock.now() - timedelta(seconds=1)

    async def work() -> None:
        for number in numbers:
            await put_schedule(api, f"s{number}", cron=f"{minute} {hour} * * *", active_since=since)

    async with asyncio.TaskGroup() as group:
        for _ in range(32):
            group.create_task(work())


async def _ok(operator: Process, path: str) -> bool:
    return (await operator.health(path))[0] == 200


async def _watch_health(operator: Process, bad: list[tuple[int, str]]) -> None:
    while True:
        answer = await operator.health("/healthz")
        if answer[0] != 200:
            bad.append(answer)
        await asyncio.sleep(1)


def sample(metrics: str, name: str) -> float:
    found = re.search(rf"^astrabox_scheduler_operator_{name} (\S+)$", metrics, re.MULTILINE)
    return float(found[1]) if found else 0.0


def memory(operator: Process) -> str:
    status = Path(f"/proc/{operator.child.pid}/status").read_text()
    now, most = (re.findall(rf"{name}:\s+(\d+)", status)[0] for name in ("VmRSS", "VmHWM"))
    return f"{int(now) // 1024} MiB, at most {int(most) // 1024} MiB"


def say(text: str) -> None:
    sys.stderr.write(f"\n{text}")
