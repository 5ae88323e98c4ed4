"""A TCP relay in front of the API server, which a test can shut, cut and silence."""

import asyncio
import contextlib
import gc
import socket
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


class Door:
    """A TCP relay to the API server, in a thread of its own; shut, it refuses and cuts all connections."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname or "127.0.0.1", parts.port or 443)
        self._open = threading.Event()
        self._silent = threading.Event()
        self._open.set()
        self._pairs: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._frozen: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()
        probe = socket.create_server(("127.0.0.1", 0))
        self.port = probe.getsockname()[1]
        probe.close()
        self._listen()

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def _listen(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", self.port), backlog=128)
        self._start(self._accept, self._listener)

    def _start(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                inside, _ = listener.accept()
            except OSError:
                return
            try:
                outside = socket.create_connection(self._target)
            except OSError:
                inside.close()
                continue
            for each in (inside, outside):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs |= {inside, outside}
            self._start(self._pump, inside, outside)
            self._start(self._pump, outside, inside)

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if source in self._frozen:
                    continue
                while self._silent.is_set() and not self._ended.is_set():
                    self._ended.wait(0.01)
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._pairs -= {source, sink}
        source.close()

    def shut(self) -> None:
        """Refuse new connections and cut the others."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.cut()

    def cut(self) -> None:
        """End all connections of now; new ones work."""
        with self._lock:
            pairs = list(self._pairs)
        for each in pairs:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def open(self) -> None:
        self._listen()

    @asynccontextmanager
    async def closed(self) -> AsyncIterator[None]:
        self.shut()
        try:
            yield
        finally:
            self.open()

    def freeze(self) -> None:
        """Let nothing through the connections of now any more; new ones work."""
        with self._lock:
            self._frozen |= self._pairs

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Connections stay, nothing goes through: a black hole."""
        self._silent.set()
        try:
            yield
        finally:
            self._silent.clear()

    def end(self) -> None:
        self._ended.set()
        self._silent.clear()
        self.shut()
        for thread in self._threads:
            thread.join(2.0)


def kubeconfig_through(kubeconfig: Path, target: Path, url: str, namespace: str) -> Path:
    """A copy of a kubeconfig that goes to another address of the same server."""
    content = yaml.safe_load(kubeconfig.read_text())
    for cluster in content["clusters"]:
        cluster["cluster"]["server"] = url
    for context in content["contexts"]:
        context["context"]["namespace"] = namespace
    target.write_text(yaml.safe_dump(content))
    return target


def server_of(kubeconfig: Path) -> str:
    url = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
    assert isinstance(url, str)
    return url


async def leave(door: Door) -> None:
    """Let go of what a shut door has left: to be called on the test's loop when everything is stopped.

    asyncio (3.11) leaves a transport whose TLS handshake was cancelled to the garbage collector, which
    warns of it in whatever test runs by then. So it is collected here, where such handshakes are made
    on purpose; everywhere else such a warning still is an error.
    """
    door.cut()
    for _ in range(5):  # turns of the loop, in which the cut connections are noticed
        await asyncio.sleep(0.005)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
