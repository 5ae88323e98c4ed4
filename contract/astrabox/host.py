"""A stand-in for an AstraBox server process, as far as its scheduler goes.

``python -m astrabox.host --socket PATH`` loads the provider that ASTRABOX_SCHEDULER_PROVIDER names,
configures and starts it, hands it all Deployment records, and then serves commands on a unix socket,
one JSON object a line::

    {"op": "apply", "schedule": {...}}  {"op": "delete", "deployment_id": "..."}
    {"op": "reconcile", "schedules": [...]}  {"op": "list_runs", "deployment_id": "...", "limit": 50}
    {"op": "enqueue", "deployment_id": "...", "payload": {...}, "trigger": "manual"}
    {"op": "properties"}  {"op": "stop"}

The answer is ``{"ok": true, "result": ...}`` or ``{"ok": false, "error": {"type", "message"}}``. The
socket appears once the host is ready. SIGTERM, SIGINT and ``stop`` stop the provider while commands
are still served; then the process ends.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from astrabox import host_wire as wire
from astrabox.host_deployments import DeploymentRecords
from astrabox.host_handler import CallRecord, HostHandler
from astrabox.loader import load_provider
from astrabox.repository import RepositoryClient, SharedCallRecord, SharedRecords
from astrabox.seams.scheduler import SchedulerError, SchedulerProvider

log = logging.getLogger("astrabox.host")

Command = Callable[[Mapping[str, Any]], Awaitable[Any]]


class Host:
    """The commands, and what they do to the Deployment records and the provider."""

    def __init__(self, provider: SchedulerProvider, records: DeploymentRecords) -> None:
        self.provider = provider
        self._records = records
        self._connections: set[asyncio.Task[None]] = set()
        self.stopping = asyncio.Event()
        self._stopped = asyncio.Event()
        self._commands: dict[str, Command] = {
            "apply": self._apply,
            "delete": self._delete,
            "reconcile": self._reconcile,
            "enqueue": self._enqueue,
            "list_runs": self._list_runs,
            "properties": self._properties,
            "stop": self._stop,
        }

    async def serve(self, socket: Path) -> None:
        """Serve commands until told to stop, and while the provider stops."""
        draft = socket.with_name(f"{socket.name}.{os.getpid()}")
        server = await asyncio.start_unix_server(self._connected, draft, limit=wire.LINE_LIMIT)
        draft.replace(socket)  # takes the place of what a killed host has left
        try:
            await self.stopping.wait()
            await self.provider.stop()
        finally:
            self._stopped.set()
            await asyncio.sleep(0)  # let the answer to `stop` out
            server.close()
            self._withdraw(socket)
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            while text := await reader.readline():
                writer.write(wire.line(await self.answer(text)))
                await writer.drain()
        except (ConnectionError, asyncio.CancelledError):
            log.debug("a connection has ended")
        finally:
            self._connections.discard(task)
            writer.close()

    @staticmethod
    def _withdraw(socket: Path) -> None:
        socket.unlink(missing_ok=True)

    async def answer(self, text: bytes) -> dict[str, Any]:
        """Run one command; an error becomes an answer, and is logged with its cause."""
        try:
            request = json.loads(text)
            result = await self._commands[request["op"]](request)
        except Exception as error:
            log.warning("a command has failed", exc_info=error)
            return {"ok": False, "error": wire.error_to_wire(error)}
        return {"ok": True, "result": result}

    async def _apply(self, request: Mapping[str, Any]) -> None:
        rule = wire.schedule_from_wire(request["schedule"])
        before = self._records.get(rule.deployment_id)
        self._records.put(rule.deployment_id, rule)
        try:
            await self.provider.apply(rule)
        except SchedulerError:
            self._records.put(rule.deployment_id, before)
            raise

    async def _delete(self, request: Mapping[str, Any]) -> None:
        deployment_id = request["deployment_id"]
        before = self._records.get(deployment_id)
        self._records.put(deployment_id, None)
        try:
            await self.provider.delete(deployment_id)
        except SchedulerError:
            self._records.put(deployment_id, before)
            raise

    async def _reconcile(self, request: Mapping[str, Any]) -> None:
        given = request.get("schedules")
        rules = self._records.all() if given is None else [wire.schedule_from_wire(rule) for rule in given]
        await self.provider.reconcile(rules)

    async def _enqueue(self, request: Mapping[str, Any]) -> dict[str, Any]:
        run = await self.provider.enqueue(
            request["deployment_id"],
            request["payload"],
            trigger=request.get("trigger", "manual"),
            replayed_from_run_id=request.get("replayed_from_run_id"),
        )
        return wire.run_to_wire(run)

    async def _list_runs(self, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        runs = await self.provider.list_runs(request["deployment_id"], limit=request.get("limit", 50))
        return [wire.run_to_wire(run) for run in runs]

    async def _properties(self, _: Mapping[str, Any]) -> dict[str, Any]:
        declared = self.provider.properties
        return {
            "recovery_scope": declared.recovery_scope,
            "max_active_schedules": declared.max_active_schedules,
            "pause_visibility_seconds": declared.pause_visibility_seconds,
        }

    async def _stop(self, _: Mapping[str, Any]) -> None:
        self.stopping.set()
        await self._stopped.wait()


async def run(options: argparse.Namespace) -> None:
    """Bring the provider up, serve, and stop it; errors of the contract go to the caller."""
    provider = load_provider()
    if provider is None:
        log.info("no scheduler provider: scheduled Deployments do not run")
        return
    record, records = _memory(options)
    provider.configure(repository_backend=object())
    host = Host(provider, records)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, host.stopping.set)
    with contextlib.closing(record):
        await provider.start(HostHandler(options.name, record))
        try:
            await provider.reconcile(records.all())
            log.info("scheduler %s is ready: %s", provider.name, provider.properties)
            await host.serve(options.socket)
        finally:
            await provider.stop()


def _memory(options: argparse.Namespace) -> tuple[CallRecord, DeploymentRecords]:
    if options.repository:
        repository = RepositoryClient(options.repository)
        return SharedCallRecord(repository), SharedRecords(repository)
    return CallRecord(options.record), DeploymentRecords(options.deployments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; 1 if the scheduler does not come up."""
    parser = argparse.ArgumentParser(prog="python -m astrabox.host", description="A stand-in AstraBox.")
    parser.add_argument("--socket", type=Path, required=True, help="unix socket on which to serve commands")
    parser.add_argument("--record", type=Path, help="file to which handler calls are appended")
    parser.add_argument("--deployments", type=Path, help="folder of Deployment records, shared by all hosts")
    parser.add_argument("--repository", metavar="HOST:PORT", help="an astrabox.repository in place of both")
    parser.add_argument("--name", default=f"host-{os.getpid()}", help="this host's name in the record")
    parser.add_argument("--log-level", default="INFO")
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=options.log_level, format=f"%(asctime)s {options.name} %(levelname)s %(name)s: %(message)s"
    )
    try:
        asyncio.run(run(options))
    except SchedulerError as error:
        log.debug("the scheduler has not come up", exc_info=error)
        sys.stderr.write(f"AstraBox does not start: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
