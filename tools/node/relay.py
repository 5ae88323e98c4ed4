"""Carries connections into a node: accepts them outside its network namespace, goes on inside.

Run as a script of its own (`python -I -S relay.py DESCRIPTOR:PORT...`), standard library only. A socket stays
in the namespace it was made in: each descriptor is one that listens outside, and its connections go on to the
port of 127.0.0.1 in here.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys

_CHUNK = 1 << 16
_BACKLOG = 256


async def serve(doors: dict[int, int]) -> None:
    """Carry connections until the end of this process; ports by descriptor."""
    for descriptor, port in doors.items():
        await asyncio.start_server(_Door(port).carry, sock=socket.socket(fileno=descriptor), backlog=_BACKLOG)
    await asyncio.Event().wait()


class _Door:
    def __init__(self, port: int) -> None:
        self._port = port

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.close()  # nobody listens inside yet: outside it looks as if it had been hung up
            return
        try:
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        finally:
            inner_writer.close()
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One direction, to its end: the other may go on."""
    with contextlib.suppress(OSError):  # broken, or not connected any more
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
        return
    writer.transport.abort()


if __name__ == "__main__":
    asyncio.run(serve({int(d): int(p) for d, _, p in (each.partition(":") for each in sys.argv[1:])}))
