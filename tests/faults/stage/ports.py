"""Ports that stay ours while nobody listens on them."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

from tools.controlplane.commands import HOST, Ports

_LOWEST = 10_000
_WORKERS = 16  # each has a share of its own: what one has chosen and not bound yet, another could choose
_given: set[int] = set()
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def steady_port() -> int:
    """A free port below those that the kernel gives to outgoing connections; no other test is given it.

    A server that is down for a while loses any other port sooner or later: to a connection of somebody
    else, or of its own client, which on one machine can even connect to itself.
    """
    highest = int(_RANGE.read_text().split()[0]) - 1
    share = (highest - _LOWEST) // _WORKERS
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", f"gw{_WORKERS - 1}").removeprefix("gw")) % _WORKERS
    while True:
        port = _LOWEST + worker * share + secrets.randbelow(share)
        if port in _given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            _given.add(port)
            return port


def steady_ports() -> Ports:
    """The three ports of a control plane."""
    return Ports(steady_port(), steady_port(), steady_port())
