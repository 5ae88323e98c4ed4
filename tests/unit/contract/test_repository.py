"""The stand-in database, as a process of its own, with a host that keeps everything there."""

import asyncio
import json
import os
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from astrabox.host_wire import HostError, schedule_to_wire
from astrabox.repository import CALLS, RepositoryClient, SharedCallRecord, SharedRecords
from astrabox.seams.scheduler import Schedule

Declare = Callable[..., Path]
RULE = Schedule("a/b", "* * * * *", "UTC", True, {"n": 1.0, "prompt": "é"})


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[str]:
    """Its address."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-m", "astrabox.repository", "--folder", str(folder), "--port", "0"),
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        said = (await process.stderr.readline()).decode()
        found = re.search(r"on port (\d+)", said)
        assert found is not None, said
        yield f"127.0.0.1:{found[1]}"
    finally:
        process.terminate()
        await process.communicate()
    assert process.returncode == 0


def calls(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in (folder / CALLS).read_text().splitlines()]


async def admitted(folder: Path) -> None:
    async with asyncio.timeout(20):
        while True:
            if any(entry["phase"] == "end" and entry["call"] == "admit_turn" for entry in calls(folder)):
                return
            await asyncio.sleep(0.02)


async def test_records_are_those_of_every_client_and_outlive_the_process(tmp_path: Path) -> None:
    async with serving(tmp_path) as address:
        records = SharedRecords(RepositoryClient(address))
        assert records.all() == []
        records.put("a/b", RULE)
        other = SharedRecords(RepositoryClient(address))
        assert other.all() == [RULE]
        assert repr(other.all()[0].payload["n"]) == "1.0"
    async with serving(tmp_path) as address:
        records = SharedRecords(RepositoryClient(address))
        assert records.get("a/b") == RULE
        records.put("a/b", None)
        assert records.get("a/b") is None


async def test_calls_are_kept_in_the_order_in_which_they_came(tmp_path: Path) -> None:
    async with serving(tmp_path) as address:
        records = [SharedCallRecord(RepositoryClient(address)) for _ in range(2)]
        for number in range(6):
            records[number % 2].append({"host": f"host-{number % 2}", "number": number})
            assert calls(tmp_path)[-1]["number"] == number  # it is kept when append returns
    entries = calls(tmp_path)
    assert [entry["number"] for entry in entries] == list(range(6))
    assert sorted(entry["received"] for entry in entries) == [entry["received"] for entry in entries]


async def test_what_it_does_not_know_is_an_error_and_the_next_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as address:
        client = RepositoryClient(address)
        with pytest.raises(HostError, match="there is no command 'dance'"):
            client.call("dance")
        assert client.call("all") == []
    with pytest.raises(ConnectionRefusedError):
        client.call("all")


async def test_a_host_keeps_everything_there_and_is_driven_through_a_pipe(
    declare: Declare, tmp_path: Path
) -> None:
    paths = os.pathsep.join(filter(None, (str(declare("example")), os.environ.get("PYTHONPATH"))))
    environ = os.environ | {"PYTHONPATH": paths, "ASTRABOX_SCHEDULER_PROVIDER": "example"}
    kept = tmp_path / "data"
    socket, run = str(tmp_path / "s"), (sys.executable, "-W", "error", "-m")
    async with serving(kept) as address:
        host = await asyncio.create_subprocess_exec(
            *(*run, "astrabox.host", "--name", "a", "--socket", socket, "--repository", address), env=environ
        )
        client = await asyncio.create_subprocess_exec(
            *(*run, "astrabox.host_client", "--socket", socket),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        commands = (
            {"op": "apply", "schedule": schedule_to_wire(RULE)},
            {"op": "enqueue", "deployment_id": "a/b", "payload": {}},
            {"op": "dance"},
        )
        told = "".join(f"{json.dumps(each)}\n" for each in commands)
        said, _ = await client.communicate(told.encode())
        answers = [json.loads(line) for line in said.splitlines()]
        assert [answer["ok"] for answer in answers] == [True, True, False]
        assert SharedRecords(RepositoryClient(address)).all() == [RULE]
        await admitted(kept)
        host.terminate()
        assert await host.wait() == 0
    assert {entry["run_id"] for entry in calls(kept)} == {answers[1]["result"]["run_id"]}
