"""A relay before the API server in which connections that are open can go bad while new ones work.

A toxiproxy changes all connections of a port, or closes them when it stops; a watch that nobody hears of
and a network that forgets a connection do neither.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Self
from urllib.parse import urlsplit

from tools.controlplane.commands import HOST

_CHUNK = 65_536


class _Connection:
    """One connection, and what may pass on it."""

    def __init__(self) -> None:
        self.asked = time.monotonic()
        self.passing = asyncio.Event()
        self.passing.set()
        """Cleared while it is frozen."""
        self.forgotten = False


class Relay:
    """Relays TCP from a port of its own to `url`; use it as a context manager."""

    def __init__(self, url: str) -> None:
        upstream = urlsplit(url)
        self._upstream = upstream.hostname or HOST, upstream.port or 443
        self._server: asyncio.Server | None = None
        self._open: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def environment(self) -> Mapping[str, str]:
        """What sends a process this way: where it finds the API server, as Kubernetes tells it."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return {"KUBERNETES_SERVICE_HOST": HOST, "KUBERNETES_SERVICE_PORT": str(port)}

    def freeze_quiet(self, seconds: float) -> int:
        """Freeze the connections on which nothing was asked for so long, as on a watch; how many they are.

        What is sent on them waits, either way. Their end still passes.
        """
        now = time.monotonic()
        found = [each for each in self._open if now - each.asked >= seconds]
        for each in found:
            each.passing.clear()
        return len(found)

    def forget_open(self) -> int:
        """Forget the connections that are open; how many they are.

        What is sent on them is lost, either way, and so is their end.
        """
        for each in self._open:
            each.forgotten = True
        return len(self._open)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        connection = _Connection()
        self._open.add(connection)
        writers = [writer]
        try:
            there, back = await asyncio.open_connection(*self._upstream)
            writers.append(back)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pass(reader, back, connection, asks=True))
                group.create_task(_pass(there, writer, connection, asks=False))
        except* (OSError, asyncio.CancelledError):
            pass  # either side is gone, or the test is over
        finally:
            self._open.discard(connection)
            self._tasks.discard(task)
            for each in writers:
                each.close()


async def _pass(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter, connection: _Connection, *, asks: bool
) -> None:
    while data := await source.read(_CHUNK):
        if asks:
            connection.asked = time.monotonic()
        await connection.passing.wait()
        if not connection.forgotten:
            sink.write(data)
            await sink.drain()
    if not connection.forgotten:
        sink.close()
