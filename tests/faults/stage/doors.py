"""Commands to hosts, as AstraBox's API layer gives them, each noted with its answer."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from astrabox.host_client import HostClient
from astrabox.host_deployments import DeploymentRecords
from astrabox.host_wire import schedule_to_wire
from astrabox.seams.scheduler import Schedule, ScheduledRun, SchedulerProperties
from tests.faults.history.facts import Command


class Door:
    """The way into one host; a connection for each command, so commands may run side by side."""

    def __init__(
        self, host: str, socket: Path, deployments: Path, note: Callable[[Command], None], within: float = 5.0
    ) -> None:
        self._host = host
        self._socket = socket
        self._deployments = deployments
        self._note = note
        self._within = within

    async def apply(self, rule: Schedule) -> None:
        """Write a Deployment record and apply it."""
        given = {key: value for key, value in _wire(rule).items() if key != "deployment_id"}
        command = self._command("apply", deployment_id=rule.deployment_id, schedule=given)
        async with self._noted(command) as client:
            await client.apply(rule)

    async def delete(self, deployment_id: str) -> None:
        """Remove a Deployment record and its Schedule."""
        async with self._noted(self._command("delete", deployment_id=deployment_id)) as client:
            await client.delete(deployment_id)

    async def reconcile(self, rules: Iterable[Schedule] | None = None) -> None:
        """Reconcile these, by default the Deployment records as they are now."""
        handed = DeploymentRecords(self._deployments).all() if rules is None else list(rules)
        command = self._command("reconcile", given=tuple(_wire(rule) for rule in handed))
        async with self._noted(command) as client:
            await client.reconcile(handed)

    async def enqueue(
        self,
        deployment_id: str,
        payload: Mapping[str, Any],
        *,
        trigger: Literal["manual", "replay"] = "manual",
        replayed_from_run_id: str | None = None,
    ) -> ScheduledRun:
        """Run now, or replay."""
        command = self._command(
            "enqueue",
            deployment_id=deployment_id,
            payload=payload,
            trigger=trigger,
            replayed_from=replayed_from_run_id,
        )
        answer: dict[str, Any] = {}
        async with self._noted(command, answer) as client:
            run = await client.enqueue(
                deployment_id, payload, trigger=trigger, replayed_from_run_id=replayed_from_run_id
            )
            answer["run_id"] = run.run_id
        return run

    async def list_runs(self, deployment_id: str, *, limit: int = 50) -> list[ScheduledRun]:
        """The newest runs; not noted, since it changes nothing."""
        async with await self._connect() as client:
            return await client.list_runs(deployment_id, limit=limit)

    async def properties(self) -> SchedulerProperties:
        """What the provider declares; not noted."""
        async with await self._connect() as client:
            return await client.properties()

    async def _connect(self) -> HostClient:
        return await HostClient.connect(self._socket, within=self._within)

    def _command(self, op: Literal["apply", "delete", "reconcile", "enqueue"], **fields: Any) -> Command:
        return Command(self._host, op, sent=time.time(), returned=None, **fields)

    @asynccontextmanager
    async def _noted(
        self, command: Command, answer: Mapping[str, Any] | None = None
    ) -> AsyncIterator[HostClient]:
        """Note a command once it was sent. No answer at all leaves open what became of it."""
        async with await self._connect() as client:
            command = dataclasses.replace(command, sent=time.time())
            returned: float | None = None
            error: str | None = None
            try:
                yield client
                returned = time.time()
            except (ConnectionError, asyncio.CancelledError, TimeoutError) as lost:
                error = f"{type(lost).__name__}: {lost}"
                raise
            except Exception as told:
                returned, error = time.time(), f"{type(told).__name__}: {told}"
                raise
            finally:
                self._note(dataclasses.replace(command, returned=returned, error=error, **(answer or {})))


def _wire(rule: Schedule) -> dict[str, Any]:
    return {**schedule_to_wire(rule), "payload": dict(rule.payload)}
