"""The control groups of a node: one of its own in every hierarchy of the machine, version 1 or 2."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from tools.node.errors import MachineError

_INIT = "init"  # version 2 allows processes in leaves only


def hierarchies(mounts: str) -> list[Path]:
    """Where control groups are mounted, version 2 first; `mounts` is the text of `/proc/mounts`."""
    fields = [line.split() for line in mounts.splitlines()]
    found = [(kind, Path(point)) for _, point, kind, *_ in fields if kind in {"cgroup", "cgroup2"}]
    return [point for _, point in sorted(found, key=lambda each: each[0] != "cgroup2")]


def group_folders(name: str) -> list[Path]:
    """The folders of a group in all hierarchies, whether they exist or not."""
    return [point / name for point in hierarchies(Path("/proc/mounts").read_text())]


def create_groups(folders: Iterable[Path]) -> None:
    """Make the folders of a node's groups, with all controllers handed down to them and on."""
    for folder in folders:
        folder.mkdir(exist_ok=True)
        for each in (folder.parent, folder):
            _hand_down(each)


def place(pid: int, folders: Iterable[Path]) -> None:
    """Move a process into a group of its own within one of the folders, which shows that they are in use."""
    for folder in folders:
        leaf = folder / _INIT
        leaf.mkdir(exist_ok=True)
        try:
            (leaf / "cgroup.procs").write_text(str(pid))
        except OSError:  # a version 1 cpuset takes none until it has CPUs
            leaf.rmdir()
        else:
            return
    raise MachineError(
        "No hierarchy of control groups takes a process; is /sys/fs/cgroup mounted and writable?"
    )


def processes_in(folders: Iterable[Path]) -> set[int]:
    """Ids of all processes in these groups and the groups within."""
    found: set[int] = set()
    for folder in folders:
        for path, _, _ in os.walk(folder):
            with contextlib.suppress(OSError):  # gone meanwhile
                found.update(map(int, (Path(path) / "cgroup.procs").read_text().split()))
    return found


def _hand_down(folder: Path) -> None:
    control = folder / "cgroup.subtree_control"
    if not control.exists():  # version 1
        return
    wanted = (folder / "cgroup.controllers").read_text().split()
    for controller in set(wanted) - set(control.read_text().split()):
        with contextlib.suppress(OSError):  # one that is in use elsewhere stays where it is
            control.write_text(f"+{controller}")
