"""A client of the stand-in host.

``python -m astrabox.host_client --socket PATH`` sends each line of its standard input as a command and prints
the answer to it: so a host in a pod is driven by ``kubectl exec``.
"""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

from astrabox import host_wire as wire
from astrabox.seams.scheduler import Schedule, ScheduledRun, SchedulerProperties


class HostClient:
    """One connection to a host; calls raise the errors of the contract, or `wire.HostError`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    @classmethod
    async def connect(cls, socket: Path, *, within: float = 30) -> Self:
        """Connect as soon as the host is ready; TimeoutError after ``within`` seconds."""
        async with asyncio.timeout(within):
            while True:
                try:
                    return cls(*await asyncio.open_unix_connection(socket, limit=wire.LINE_LIMIT))
                except (FileNotFoundError, ConnectionRefusedError):
                    await asyncio.sleep(0.02)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; the host runs on."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):  # the host was faster
            await self._writer.wait_closed()

    async def call(self, op: str, **arguments: Any) -> Any:
        """Send a command and return its result; ConnectionError if the host goes away."""
        return wire.result_of(await self.send(wire.line({"op": op, **arguments})))

    async def send(self, text: bytes) -> bytes:
        """Send a line and return the answer's; ConnectionError if the host goes away."""
        async with self._turn:
            self._writer.write(text)
            await self._writer.drain()
            answer = await self._reader.readline()
        if not answer:
            raise ConnectionResetError("the host has closed the connection")
        return answer

    async def apply(self, rule: Schedule) -> None:
        """Write a Deployment record and apply it; both or none."""
        await self.call("apply", schedule=wire.schedule_to_wire(rule))

    async def delete(self, deployment_id: str) -> None:
        """Remove a Deployment record and its Schedule; both or none."""
        await self.call("delete", deployment_id=deployment_id)

    async def reconcile(self, rules: Iterable[Schedule] | None = None) -> None:
        """Let the provider reconcile these Schedules, by default all Deployment records."""
        given = None if rules is None else [wire.schedule_to_wire(rule) for rule in rules]
        await self.call("reconcile", schedules=given)

    async def enqueue(
        self,
        deployment_id: str,
        payload: Mapping[str, Any],
        *,
        trigger: Literal["manual", "replay"] = "manual",
        replayed_from_run_id: str | None = None,
    ) -> ScheduledRun:
        """Run now, or replay."""
        fields = await self.call(
            "enqueue",
            deployment_id=deployment_id,
            payload=payload,
            trigger=trigger,
            replayed_from_run_id=replayed_from_run_id,
        )
        return wire.run_from_wire(fields)

    async def list_runs(self, deployment_id: str, *, limit: int = 50) -> list[ScheduledRun]:
        """Return the newest runs."""
        rows = await self.call("list_runs", deployment_id=deployment_id, limit=limit)
        return [wire.run_from_wire(fields) for fields in rows]

    async def properties(self) -> SchedulerProperties:
        """Return what the provider declares."""
        return SchedulerProperties(**await self.call("properties"))

    async def stop(self) -> None:
        """Stop the provider and then the host; returns once the provider has stopped."""
        await self.call("stop")


async def carry(socket: Path, within: float) -> None:
    """Carry commands from standard input to a host, and its answers to standard output."""
    async with await HostClient.connect(socket, within=within) as client:
        for text in sys.stdin.buffer:
            sys.stdout.buffer.write(await client.send(text))
            sys.stdout.buffer.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m astrabox.host_client", description="Drives a host.")
    parser.add_argument("--socket", type=Path, required=True, help="unix socket of the host")
    parser.add_argument("--within", type=float, default=30, help="seconds to wait for a host")
    options = parser.parse_args(arguments)
    asyncio.run(carry(options.socket, options.within))
    return 0


if __name__ == "__main__":
    sys.exit(main())
