"""What a node has on this machine while it runs, so that a test can look for it afterwards."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.node.groups import group_folders, processes_in
from tools.node.init import KERNEL

_FOLDERS = (
    "/run",
    "/run/netns",
    "/run/containerd",
    "/opt",
    "/var/lib",
    "/var/log",
    "/etc/cni",
    "/usr/libexec",
)
_NAMESPACES = ("net", "mnt", "pid", "ipc", "uts")


@dataclass(frozen=True)
class Process:
    """A process that cannot be taken for a later one with its number."""

    pid: int
    started: str
    name: str
    state: str


@dataclass(frozen=True)
class Traces:
    """Processes of a node, with its containers, and the namespaces that only they are in."""

    processes: dict[int, Process]
    namespaces: set[str]

    def left(self) -> list[str]:
        """Those that are still there; an orphan that only waits to be reaped is not."""
        now = _processes()
        alive = [
            each for pid, each in self.processes.items()
            if pid in now and now[pid].started == each.started and now[pid].state != "Z"
        ]  # fmt: skip
        present = {name for pid in now for name in _namespaces(pid)}
        return [f"{each.name} {each.pid}" for each in alive] + sorted(self.namespaces & present)


def traces_of(keeper: int, directory: Path) -> Traces:
    """Everything below the keeper, and everything in the node's control groups."""
    found = _below(keeper) | processes_in(group_folders(directory.name))
    all_processes = _processes()
    namespaces = {name for pid in found for name in _namespaces(pid)} - set(_namespaces(os.getpid()))
    return Traces({pid: all_processes[pid] for pid in found if pid in all_processes}, namespaces)


def machine_state() -> dict[str, list[str]]:
    """What of the whole machine a node might change, in lists that name each thing."""
    links = json.loads(subprocess.check_output(["ip", "-json", "link"], text=True))
    rules = subprocess.run(["iptables-save"], capture_output=True, text=True, check=True).stdout
    return {
        "mounts": Path("/proc/mounts").read_text().splitlines(),
        "interfaces": [link["ifname"] for link in links],
        "rules": [line.split(" [")[0] for line in rules.splitlines() if not line.startswith("#")],
        "groups": [
            str(path)
            for path in Path("/sys/fs/cgroup").rglob("*")
            if "kubepods" in path.name or "node-" in path.name
        ],
        "folders": [
            str(path) for folder in map(Path, _FOLDERS) if folder.is_dir() for path in folder.iterdir()
        ],
        "kernel": [Path("/proc/sys", name).read_text() for name in (*KERNEL, "net/ipv4/ip_forward")],
    }


def _below(pid: int) -> set[int]:
    children: dict[int, list[int]] = {}
    for entry in _pids():
        if fields := _stat(entry):
            children.setdefault(int(fields[1]), []).append(entry)
    found, todo = set(), [pid]
    while todo:
        found.add(todo[-1])
        todo += children.get(todo.pop(), [])
    return found


def _processes() -> dict[int, Process]:
    found = {}
    for pid in _pids():
        if fields := _stat(pid):
            found[pid] = Process(pid, fields[19], _name(pid), fields[0])
    return found


def _pids() -> Iterator[int]:
    return (int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal())


def _stat(pid: int) -> list[str]:
    """The fields after the name: state, parent, and 18 further on the time of its start."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _namespaces(pid: int) -> list[str]:
    try:
        return [str(Path(f"/proc/{pid}/ns/{kind}").readlink()) for kind in _NAMESPACES]
    except OSError:  # it has ended
        return []
