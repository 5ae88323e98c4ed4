"""The namespaces and control groups of one node, with doors to the ports that are needed outside."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from tools.controlplane.commands import HOST, Ports
from tools.controlplane.errors import StartError
from tools.controlplane.processes import Processes
from tools.node.components import ADDRESS, INIT, RELAY
from tools.node.groups import create_groups, group_folders, place
from tools.node.packages import SEARCH

PREFIX = "astrabox-node-"
_NAMESPACES = ("unshare", "--net", "--ipc", "--uts", "--pid")
"""`--pid` holds for children only: the keeper stays outside, its first child is process 1 of the others."""
_READY_TIMEOUT = 30.0
_POLL = 0.01


@dataclass(frozen=True)
class Enclosure:
    """What is inside: every process that `processes` starts; those that mount need `mounts` before them."""

    processes: Processes
    ports: Ports
    proxy_health: int
    mounts: Sequence[str]

    @property
    def group(self) -> str:
        """Name of the node's control group in every hierarchy."""
        return self.processes.directory.name

    def start(self, name: str, command: Sequence[str]) -> None:
        """Start a component that needs the node's mounts, with nothing of our environment but a PATH."""
        self.processes.start(name, [*self.mounts, *command], {"PATH": SEARCH, "HOME": "/"})


def open_enclosure() -> Enclosure:
    """Make namespaces and groups that end with the processes in them; `StartError` if they cannot be made."""
    with ExitStack() as doors:
        # A socket stays where it was made: these listen out here. Inside nobody else has taken their ports.
        listening = [doors.enter_context(socket.create_server((HOST, 0))) for _ in range(3)]
        apiserver, etcd, health = ports = [each.getsockname()[1] for each in listening]
        descriptors = [each.fileno() for each in listening]
        processes = Processes(PREFIX, within=_NAMESPACES, descriptors=descriptors)
    try:
        init = _start_init(processes)
        pairs = zip(descriptors, ports, strict=True)
        processes.start(RELAY, _script("relay.py", *(f"{door}:{port}" for door, port in pairs)))
    except BaseException:
        processes.close()
        raise
    peer = next(port for port in range(2380, 2390) if port not in ports)
    mounts = ("nsenter", f"--mount=/proc/{init}/ns/mnt", "--")
    return Enclosure(processes, Ports(apiserver=apiserver, etcd=etcd, etcd_peer=peer), health, mounts)


def _start_init(processes: Processes) -> int:
    directory = processes.directory
    groups = group_folders(directory.name)
    processes.remove_at_end(groups)
    create_groups(groups)
    command = ["unshare", "--mount", *_script("init.py", str(directory), ADDRESS)]
    pid = processes.start(INIT, command, {"PATH": SEARCH})
    place(pid, groups)
    deadline = time.monotonic() + _READY_TIMEOUT
    while not (directory / "init.ready").exists():
        if processes.exited() or time.monotonic() > deadline:
            raise StartError(
                f"the namespaces of a node could not be prepared:\n{processes.log_tail(INIT)}\n"
                "In a container this needs --privileged; otherwise correct what is said above."
            )
        time.sleep(_POLL)
    return pid


def _script(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name(name)), *arguments]
