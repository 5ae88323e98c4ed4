"""The relay as a process of its own, between a client and an echo server of this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

RELAY = Path(__file__).parents[3] / "tools" / "node" / "relay.py"
LARGE = bytes(range(256)) * 20_000


def say(client: socket.socket, everything: bytes) -> None:
    client.sendall(everything)
    client.shutdown(socket.SHUT_WR)


def echo(server: socket.socket) -> None:
    """Send everything back, but only after the client has finished: it must be told of that end."""
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with connection:
            received = bytearray()
            while chunk := connection.recv(65536):
                received += chunk
            connection.sendall(received)


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as made:
        thread = threading.Thread(target=echo, args=(made,))
        thread.start()
        yield made
        made.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextmanager
def relay(target: int) -> Iterator[int]:
    """The port of a relay to `target`; it must not have complained."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(RELAY), f"{listening.fileno()}:{target}"],
            pass_fds=[listening.fileno()],
            stderr=subprocess.PIPE,
        )
    try:
        yield port
    finally:
        process.terminate()
        _, complaints = process.communicate(timeout=10)
    assert complaints == b""


@pytest.fixture
def door(server: socket.socket) -> Iterator[int]:
    with relay(server.getsockname()[1]) as port:
        yield port


def test_both_directions_to_the_end_of_each(door: int) -> None:
    with socket.create_connection(("127.0.0.1", door), timeout=10) as client:
        sender = threading.Thread(target=say, args=(client, LARGE))
        sender.start()
        received = bytearray()
        while chunk := client.recv(65536):
            received += chunk
        sender.join()
    assert received == LARGE


def test_many_at_once(door: int) -> None:
    clients = [socket.create_connection(("127.0.0.1", door), timeout=10) for _ in range(50)]
    for number, client in enumerate(clients):
        say(client, b"%d" % number)
    assert [client.recv(10) for client in clients] == [b"%d" % number for number in range(50)]
    for client in clients:
        client.close()


def test_a_client_that_breaks_off_leaves_nothing_in_the_log(door: int) -> None:
    for _ in range(5):
        client = socket.create_connection(("127.0.0.1", door), timeout=10)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # close() resets
        client.sendall(LARGE[:1000])
        client.close()
    test_both_directions_to_the_end_of_each(door)


def test_where_nobody_listens_it_hangs_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    with (
        relay(free) as port,
        socket.create_connection(("127.0.0.1", port), timeout=10) as client,
    ):
        assert client.recv(10) == b""
