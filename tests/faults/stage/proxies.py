"""A toxiproxy between each process and the API server, so that each has a network of its own.

A connection whose bytes were held back (`silence`, `swallow_answers`) is closed by `mend`, as toxiproxy
does when it takes such a toxic away.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from tests.faults.stage.ports import steady_port
from tools.controlplane import StartError, ensure_binaries
from tools.controlplane.commands import HOST
from tools.controlplane.processes import Processes

PROGRAM = "toxiproxy-server"
_START_SECONDS = 10.0
Notice = Callable[[bool], None]
"""Told before the network gets worse (True), and after it is well again (False)."""


class Proxy:
    """One process's way to the API server; changes hold for connections that are open and for new ones."""

    def __init__(self, server: Proxies, name: str, port: int, notice: Notice) -> None:
        self._server = server
        self._path = f"/proxies/{name}"
        self._notice = notice
        self._toxics: set[str] = set()
        self.port = port

    async def cut(self) -> None:
        """Close all connections and refuse new ones."""
        self._notice(True)
        await self._enable(on=False)

    async def mend(self) -> None:
        """Let everything pass again."""
        for name in sorted(self._toxics):
            await self._server.ask("DELETE", f"{self._path}/toxics/{name}")
        self._toxics.clear()
        await self._enable(on=True)
        self._notice(False)

    async def silence(self) -> None:
        """Let nothing pass either way; connections stay open, and new ones are accepted."""
        self._notice(True)
        for stream in ("upstream", "downstream"):
            await self._add("timeout", stream, timeout=0)

    async def swallow_answers(self) -> None:
        """Let requests of open connections pass, but no answer. A new connection gets no TLS handshake."""
        self._notice(True)
        await self._add("timeout", "downstream", timeout=0)

    async def slow(self, seconds: float, jitter: float = 0.0) -> None:
        """Delay every answer, by `jitter` seconds more or less."""
        self._notice(True)
        await self._add("latency", "downstream", latency=round(seconds * 1000), jitter=round(jitter * 1000))

    async def close_connections(self) -> None:
        """Close all connections; new ones are served."""
        self._notice(True)
        await self._enable(on=False)
        await self._enable(on=True)
        self._notice(False)

    async def _enable(self, *, on: bool) -> None:
        await self._server.ask("POST", self._path, {"enabled": on})

    async def _add(self, kind: str, stream: str, **attributes: int) -> None:
        name = f"{kind}_{stream}"
        toxic = {"name": name, "type": kind, "stream": stream, "toxicity": 1.0, "attributes": attributes}
        path = f"{self._path}/toxics"
        await self._server.ask("POST", f"{path}/{name}" if name in self._toxics else path, toxic)
        self._toxics.add(name)


class Proxies:
    """One toxiproxy-server in front of one API server; it ends with the given `processes`."""

    def __init__(self, processes: Processes, upstream: str) -> None:
        self._processes = processes
        self._upstream = urlsplit(upstream).netloc
        self._api = ""

    async def start(self) -> None:
        """Start the server and wait until it answers. Raises StartError."""
        program = await asyncio.to_thread(ensure_binaries, (PROGRAM,)) / PROGRAM
        port = steady_port()
        self._api = f"http://{HOST}:{port}"
        self._processes.start(PROGRAM, [str(program), "-host", HOST, "-port", str(port)])
        deadline = time.monotonic() + _START_SECONDS
        while True:
            try:
                await self.ask("GET", "/version")
            except aiohttp.ClientError:
                if time.monotonic() > deadline:
                    raise StartError(f"{PROGRAM}:\n{self._processes.log_tail(PROGRAM)}") from None
                await asyncio.sleep(0.02)
            else:
                return

    async def proxy(self, name: str, notice: Notice = lambda _worse: None) -> Proxy:
        """A new proxy with a port of its own on 127.0.0.1."""
        port = steady_port()
        listen = f"{HOST}:{port}"
        await self.ask("POST", "/proxies", {"name": name, "listen": listen, "upstream": self._upstream})
        return Proxy(self, name, port, notice)

    async def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> None:
        """One call of toxiproxy's API. Raises RuntimeError if it refuses."""
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, self._api + path, json=body) as answer,
        ):
            if answer.status >= HTTPStatus.BAD_REQUEST:
                raise RuntimeError(f"toxiproxy: {method} {path}: {answer.status} {await answer.text()}")
