"""A stand-in for AstraBox's database, for hosts that share no folder, such as pods.

``python -m astrabox.repository --folder DIR`` keeps Deployment records and the record of handler calls, and
serves them on a TCP port, one JSON object a line and one line a connection::

    {"op": "all"}  {"op": "get", "deployment_id": "..."}
    {"op": "put", "deployment_id": "...", "schedule": {...} or null}
    {"op": "append", "entry": {...}}

The answer is ``{"ok": true, "result": ...}`` or ``{"ok": false, "error": {"type", "message"}}``. Calls go to
``calls.jsonl`` in the order in which they came, each with ``received``, the time of this one clock.
"""

import argparse
import asyncio
import contextlib
import json
import logging
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from astrabox import host_wire as wire
from astrabox.host_deployments import DeploymentRecords
from astrabox.host_handler import CallRecord
from astrabox.seams.scheduler import Schedule

PORT: Final = 7100
CALLS: Final = "calls.jsonl"
TIMEOUT_SECONDS: Final = 10.0

log = logging.getLogger("astrabox.repository")


class Repository:
    """The server's side: what it keeps is in one folder."""

    def __init__(self, folder: Path) -> None:
        self._records = DeploymentRecords(folder / "deployments")
        self._calls = CallRecord(folder / CALLS)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one line; one that was cut off has asked for nothing."""
        with contextlib.suppress(ConnectionError):
            text = await reader.readline()
            if text.endswith(b"\n"):
                writer.write(wire.line(self.answer(text)))
                await writer.drain()
        writer.close()

    def answer(self, text: bytes) -> dict[str, Any]:
        """Run one command; an error becomes an answer, and is logged with its cause."""
        try:
            result = self._run(json.loads(text))
        except Exception as error:
            log.warning("a command has failed", exc_info=error)
            return {"ok": False, "error": wire.error_to_wire(error)}
        return {"ok": True, "result": result}

    def _run(self, request: Mapping[str, Any]) -> Any:
        match request["op"]:
            case "all":
                return [wire.schedule_to_wire(rule) for rule in self._records.all()]
            case "get":
                return _to_wire(self._records.get(request["deployment_id"]))
            case "put":
                self._records.put(request["deployment_id"], _from_wire(request["schedule"]))
            case "append":
                self._calls.append({**request["entry"], "received": time.time()})
            case other:
                raise ValueError(f"there is no command {other!r}")
        return None


class RepositoryClient:
    """Asks a repository; each question waits for its answer, so that what was recorded is kept."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._address = (host, int(port))

    def call(self, op: str, **arguments: Any) -> Any:
        """Send a command and return its result. Raises OSError, or `host_wire.HostError`."""
        with socket.create_connection(self._address, TIMEOUT_SECONDS) as connection:
            connection.sendall(wire.line({"op": op, **arguments}))
            with connection.makefile("rb") as answers:
                text = answers.readline()
        if not text:
            raise ConnectionResetError("the repository has closed the connection")
        return wire.result_of(text)


class SharedRecords(DeploymentRecords):
    """Deployment records in a repository."""

    def __init__(self, repository: RepositoryClient) -> None:
        super().__init__(None)
        self._repository = repository

    def all(self) -> list[Schedule]:
        """Return every record."""
        return [wire.schedule_from_wire(fields) for fields in self._repository.call("all")]

    def get(self, deployment_id: str) -> Schedule | None:
        """Return one record."""
        return _from_wire(self._repository.call("get", deployment_id=deployment_id))

    def put(self, deployment_id: str, rule: Schedule | None) -> None:
        """Write one record, or remove it."""
        self._repository.call("put", deployment_id=deployment_id, schedule=_to_wire(rule))


class SharedCallRecord(CallRecord):
    """The record of handler calls in a repository."""

    def __init__(self, repository: RepositoryClient) -> None:
        super().__init__(None)
        self._repository = repository

    def append(self, entry: dict[str, Any]) -> None:
        """Add one entry; it is kept when this returns."""
        self._repository.call("append", entry=entry)


def _to_wire(rule: Schedule | None) -> dict[str, Any] | None:
    return None if rule is None else wire.schedule_to_wire(rule)


def _from_wire(fields: Mapping[str, Any] | None) -> Schedule | None:
    return None if fields is None else wire.schedule_from_wire(fields)


async def run(options: argparse.Namespace) -> None:
    """Serve until SIGTERM or SIGINT."""
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    repository = Repository(options.folder)
    server = await asyncio.start_server(
        repository.connected, options.host, options.port, limit=wire.LINE_LIMIT
    )
    log.info("serving %s on port %d", options.folder, server.sockets[0].getsockname()[1])
    await stopping.wait()
    server.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m astrabox.repository", description="A stand-in database.")
    parser.add_argument("--folder", type=Path, required=True, help="where to keep what is given")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve on")
    parser.add_argument("--port", type=int, default=PORT, help="0: any free one")
    options = parser.parse_args(arguments)
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(run(options))
    return 0


if __name__ == "__main__":
    sys.exit(main())
