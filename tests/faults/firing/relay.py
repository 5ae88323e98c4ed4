"""A relay before the API server in which single connections stand still: a watch that nobody hears of."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self
from urllib.parse import urlsplit

from tools.controlplane import ControlPlane
from tools.controlplane.commands import HOST

_CHUNK = 65_536


class _Connection:
    """One connection; while it is frozen nothing passes either way, and it stays open."""

    def __init__(self) -> None:
        self.asked = time.monotonic()
        self.passing = asyncio.Event()
        self.passing.set()


class Relay:
    """`environment` sends a process here. A watch is told by its silence: nothing is asked on it for long."""

    def __init__(self, plane: ControlPlane) -> None:
        upstream = urlsplit(plane.url)
        self._upstream = upstream.hostname or HOST, upstream.port or 0
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def open(cls, plane: ControlPlane) -> AsyncIterator[Self]:
        """Serve on a port of its own."""
        relay = cls(plane)
        relay._server = await asyncio.start_server(relay._serve, HOST, 0)
        try:
            yield relay
        finally:
            relay._server.close()
            for task in relay._tasks:
                task.cancel()
            await asyncio.gather(*relay._tasks, return_exceptions=True)

    @property
    def environment(self) -> Mapping[str, str]:
        """Where the process finds the API server, as Kubernetes tells it."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return {"KUBERNETES_SERVICE_HOST": HOST, "KUBERNETES_SERVICE_PORT": str(port)}

    def freeze_watches(self, quiet: float) -> int:
        """Freeze the connections on which nothing was asked for so many seconds; how many."""
        now = time.monotonic()
        found = [each for each in self._open if now - each.asked >= quiet]
        for each in found:
            each.passing.clear()
        return len(found)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = _Connection()
        self._open.add(connection)
        try:
            there, back = await asyncio.open_connection(*self._upstream)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, back, connection, asks=True))
                group.create_task(self._pass(there, writer, connection, asks=False))
        except* (OSError, asyncio.CancelledError):
            pass  # either side is gone, or the test is over
        finally:
            self._open.discard(connection)
            self._tasks.discard(task)
            writer.close()

    async def _pass(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, connection: _Connection, *, asks: bool
    ) -> None:
        with contextlib.closing(sink):
            while data := await source.read(_CHUNK):
                if asks:
                    connection.asked = time.monotonic()
                await connection.passing.wait()
                sink.write(data)
                await sink.drain()
