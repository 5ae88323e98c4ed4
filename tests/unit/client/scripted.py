"""A server on 127.0.0.1 that does exactly what a test wrote down, faults included."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from astrabox_scheduler_client.connect import Connection
from astrabox_scheduler_client.endpoint import Endpoint, Tls
from astrabox_scheduler_client.transport import Transport
from astrabox_scheduler_crds.server_clock import ServerClock

DATE = "Sat, 31 Jan 2026 02:30:00 GMT"


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


Step = Callable[[asyncio.StreamWriter], Awaitable[bool]]
"""Answers one request; True keeps the connection open for the next."""


def answer(status: int = 200, body: Any = None, **headers: str) -> Step:
    content = body if isinstance(body, bytes) else json.dumps({} if body is None else body).encode()

    async def step(writer: asyncio.StreamWriter) -> bool:
        lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content)}", f"Date: {DATE}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + content)
        await writer.drain()
        return True

    return step


def raw(content: bytes, *, then_silent: bool = False) -> Step:
    """These bytes, then a closed connection or silence."""

    async def step(writer: asyncio.StreamWriter) -> bool:
        writer.write(content)
        await writer.drain()
        if then_silent:
            await asyncio.Event().wait()
        return False

    return step


def silent() -> Step:
    return raw(b"", then_silent=True)


def chunked(*chunks: bytes, ended: bool = True, then_silent: bool = False) -> Step:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return raw(head + body + (b"0\r\n\r\n" if ended else b""), then_silent=then_silent)


def status_object(code: int, reason: str = "", message: str = "", **details: Any) -> dict[str, Any]:
    """An API server's error."""
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message} | (
        {"details": details} if details else {}
    )


@dataclass
class ScriptedServer:
    script: list[Step]
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    """Set by the first request."""

    @asynccontextmanager
    async def running(self) -> AsyncIterator["ScriptedServer"]:
        tasks: set[asyncio.Task[None]] = set()

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            with suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while await self._serve(reader, writer):
                    pass
            writer.close()
            tasks.discard(task)

        server = await asyncio.start_server(connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = head[0].split(" ")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        self.requests.append(Request(method, target, headers, body))
        self.asked.set()
        return await self.script.pop(0)(writer)


@dataclass
class Configuration:
    """What a kubeconfig would say; `reads` counts how often it was read."""

    endpoint: Endpoint
    reads: int = 0

    async def load(self) -> Endpoint:
        self.reads += 1
        return self.endpoint


def endpoint(port: int, token: str | None = None) -> Endpoint:
    authorization = f"Bearer {token}" if token else None
    return Endpoint(f"http://127.0.0.1:{port}", "default", authorization, Tls(), "", None)


@asynccontextmanager
async def transport_to(port: int, limit: float = 5.0) -> AsyncIterator[tuple[Transport, Configuration]]:
    configuration = Configuration(endpoint(port, "first"))
    connection = Connection(configuration.endpoint, configuration.load)
    try:
        yield Transport(connection, ServerClock(), limit, "test"), configuration
    finally:
        await connection.close()
