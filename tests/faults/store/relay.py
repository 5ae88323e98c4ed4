"""A relay behind one process whose open connections can be made to carry nothing, while new ones work.

A toxiproxy changes all connections of a port, or closes them when it stops; a network that forgets a
connection does neither.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Self
from urllib.parse import urlsplit

_CHUNK = 65536


class Relay:
    """Relays TCP from a port of its own to `url`; use it as a context manager."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 443)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.Event] = set()
        """One for each connection, set when it is forgotten."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def forget(self) -> int:
        """From now on the connections that are open carry nothing, and stay open; how many they are."""
        for forgotten in self._open:
            forgotten.set()
        return len(self._open)

    @property
    def environment(self) -> dict[str, str]:
        """What lets a process of a rig come this way."""
        return {"KUBERNETES_SERVICE_PORT": str(self.port)}

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        forgotten = asyncio.Event()
        self._open.add(forgotten)
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
            writers.append(far_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(_pump(reader, far_writer, forgotten))
                group.create_task(_pump(far_reader, writer, forgotten))
        except (OSError, ExceptionGroup, asyncio.CancelledError):
            return
        finally:
            self._open.discard(forgotten)
            self._tasks.discard(task)
            for each in writers:
                each.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forgotten: asyncio.Event) -> None:
    """What is read of a forgotten connection goes nowhere, also its end."""
    while data := await reader.read(_CHUNK):
        if not forgotten.is_set():
            writer.write(data)
            await writer.drain()
    if forgotten.is_set():
        return
    with contextlib.suppress(OSError):
        writer.close()
