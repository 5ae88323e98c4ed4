"""The stand-in host, as a process of its own with the in-memory provider."""

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from astrabox.host_client import HostClient
from astrabox.host_wire import HostError
from astrabox.seams.scheduler import InvalidSchedule, Schedule, ScheduledRun, SchedulerProperties

Declare = Callable[..., Path]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="host-") as short:  # a socket's path is short
        yield Path(short)


async def launch(path: Path, folder: Path, *options: str, provider: str = "example") -> Any:
    paths = os.pathsep.join(filter(None, (str(path), os.environ.get("PYTHONPATH"))))
    environ = os.environ | {"PYTHONPATH": paths, "ASTRABOX_SCHEDULER_PROVIDER": provider}
    arguments = ("--socket", str(folder / "s"), "--record", str(folder / "calls"), *options)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "astrabox.host", "--name", "a", *arguments),
        env=environ,
        stderr=asyncio.subprocess.PIPE,
    )


async def ready(process: Any, socket: Path) -> HostClient:
    connecting = asyncio.create_task(HostClient.connect(socket))
    ending = asyncio.create_task(process.wait())
    await asyncio.wait((connecting, ending), return_when=asyncio.FIRST_COMPLETED)
    if ending.done():
        connecting.cancel()
        pytest.fail((await process.stderr.read()).decode())
    ending.cancel()
    return await connecting


@asynccontextmanager
async def running(path: Path, folder: Path, *options: str) -> AsyncIterator[tuple[Any, HostClient]]:
    process = await launch(path, folder, *options)
    try:
        async with await ready(process, folder / "s") as client:
            yield process, client
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(client: HostClient, deployment_id: str, status: str = "completed") -> ScheduledRun:
    async with asyncio.timeout(20):
        while True:
            runs = await client.list_runs(deployment_id)
            if runs and runs[0].status == status:
                return runs[0]
            await asyncio.sleep(0.01)


async def called(folder: Path, call: str) -> None:
    async with asyncio.timeout(20):
        while True:
            if any(entry["call"] == call for entry in recorded(folder)):
                return
            await asyncio.sleep(0.01)


def recorded(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (folder / "calls").read_text().splitlines()]


def behaving(**behaviour: str) -> dict[str, Any]:
    return {"behaviour": behaviour}


async def test_commands(declare: Declare, folder: Path) -> None:
    async with running(declare("example"), folder) as (process, client):
        assert await client.properties() == SchedulerProperties("cluster", None, 0)
        await client.apply(Schedule("a", "* * * * *", "UTC", True, {"prompt": "é", "n": 1.0}))
        with pytest.raises(InvalidSchedule, match="knows only"):
            await client.apply(Schedule("a", "0 * * * *", "UTC", True, {}))
        await client.reconcile()
        first = await client.enqueue("a", {"n": 1.0})
        done = await ended(client, "a")
        assert (done.run_id, done.trigger, repr(done.payload["n"])) == (first.run_id, "manual", "1.0")
        second = await client.enqueue("a", first.payload, trigger="replay", replayed_from_run_id=first.run_id)
        assert second.replayed_from_run_id == first.run_id
        assert [run.run_id for run in await client.list_runs("a", limit=1)] == [second.run_id]
        await client.delete("a")
        with pytest.raises(HostError, match="KeyError: 'dance'"):
            await client.call("dance")
        await client.stop()
        assert await process.wait() == 0
        assert not (folder / "s").exists()


async def test_calls_are_recorded(declare: Declare, folder: Path) -> None:
    async with running(declare("example"), folder) as (_, client):
        run = await client.enqueue("a", behaving(start_session="fail:1"))
        done = await ended(client, "a")
        failed = await client.enqueue("b", behaving(admit_turn="permanent"))
        error = (await ended(client, "b", "failed")).error
    lines = recorded(folder)
    phases = [(entry["call"], entry["phase"]) for entry in lines if entry["run_id"] == run.run_id]
    assert phases == [
        ("start_session", "begin"),
        ("start_session", "error"),
        ("start_session", "begin"),
        ("start_session", "end"),
        ("admit_turn", "begin"),
        ("admit_turn", "end"),
    ]
    assert {entry["host"] for entry in lines} == {"a"}
    assert lines[3]["session_id"] == lines[4]["session_id"] == done.session_id
    assert lines[5]["turn_id"] == done.turn_id
    assert len({entry["payload_sha256"] for entry in lines if entry["run_id"] == run.run_id}) == 1
    assert error == "admit_turn fails for good"
    assert [e["phase"] for e in lines if e["run_id"] == failed.run_id and e["call"] == "admit_turn"] == [
        "begin",
        "error",
    ]


async def test_behaviour_of_another_host_is_ignored(declare: Declare, folder: Path) -> None:
    async with running(declare("example"), folder) as (_, client):
        await client.enqueue("a", behaving(start_session="kill", host="b"))
        await ended(client, "a")


async def test_kill_kills_the_process(declare: Declare, folder: Path) -> None:
    async with running(declare("example"), folder) as (process, client):
        await client.enqueue("a", behaving(start_session="kill"))
        assert await process.wait() == -signal.SIGKILL
    assert [entry["phase"] for entry in recorded(folder)] == ["begin"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signal_stops_the_provider_while_commands_are_served(
    declare: Declare, folder: Path, number: signal.Signals
) -> None:
    slow = "    def __init__(self):\n        super().__init__(drain=5)"
    async with running(declare("example", extra=slow), folder) as (process, client):
        run = await client.enqueue("a", behaving(admit_turn="hang:0.5"))
        await called(folder, "admit_turn")
        process.send_signal(number)
        await asyncio.sleep(0.1)
        assert [r.run_id for r in await client.list_runs("a")] == [run.run_id]
        assert await process.wait() == 0
    assert recorded(folder)[-1]["phase"] == "end"


async def test_deployment_records_outlive_the_host(declare: Declare, folder: Path) -> None:
    path, rule = declare("example"), Schedule("a/b", "* * * * *", "UTC", True, {"n": 1.0})
    options = ("--deployments", str(folder / "records"))
    async with running(path, folder, *options) as (process, client):
        await client.apply(rule)
        with pytest.raises(InvalidSchedule):
            await client.apply(Schedule("a/b", "bad", "UTC", True, {}))
        process.kill()
        await process.wait()
    assert (folder / "s").exists()
    async with running(path, folder, *options) as (_, client):
        await client.reconcile()
        (record,) = (folder / "records").glob("*.json")
        assert json.loads(record.read_text())["payload"] == {"n": 1.0}
        await client.delete("a/b")
        assert not list((folder / "records").iterdir())


UNCONFIGURABLE = """
    def configure(self, *, repository_backend):
        from astrabox.seams.scheduler import SchedulerConfigurationError
        raise SchedulerConfigurationError('no database')
"""


@pytest.mark.parametrize(
    ("provider", "extra", "said"),
    [
        ("absent", "", "no scheduler provider named 'absent' is installed"),
        ("example", UNCONFIGURABLE, "no database"),
    ],
)
async def test_host_does_not_start_without_its_provider(
    declare: Declare, folder: Path, provider: str, extra: str, said: str
) -> None:
    process = await launch(declare("example", extra=extra), folder, provider=provider)
    _, errors = await process.communicate()
    assert process.returncode == 1
    assert errors.decode().startswith(f"AstraBox does not start: {said}")
