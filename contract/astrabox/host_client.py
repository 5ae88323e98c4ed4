"""A client of the stand-in host."""

import asyncio
import contextlib
import json
from collections.abc import Iterable, Mapping
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
        async with self._turn:
            self._writer.write(wire.line({"op": op, **arguments}))
            await self._writer.drain()
            text = await self._reader.readline()
        if not text:
            raise ConnectionResetError("the host has closed the connection")
        answer = json.loads(text)
        if not answer["ok"]:
            raise wire.error_from_wire(answer["error"])
        return answer["result"]

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
