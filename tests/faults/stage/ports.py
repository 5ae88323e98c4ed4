"""Ports that stay ours while nobody listens on them."""

from __future__ import annotations

import secrets
import socket
from pathlib import Path

from tools.controlplane.commands import HOST, Ports

_LOWEST = 10_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def steady_port() -> int:
    """A free port below those that the kernel gives to outgoing connections.

    A server that is down for a while loses any other port sooner or later: to a connection of somebody
    else, or of its own client, which on one machine can even connect to itself.
    """
    highest = int(_RANGE.read_text().split()[0]) - 1
    while True:
        port = _LOWEST + secrets.randbelow(highest - _LOWEST)
        with socket.socket() as probe:
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


def steady_ports() -> Ports:
    """The three ports of a control plane."""
    return Ports(steady_port(), steady_port(), steady_port())
