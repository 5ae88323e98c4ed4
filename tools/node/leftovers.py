"""Finds the nodes of this machine, and removes what is left of those whose keeper was killed.

The kernel ends all processes of a node with process 1 of its namespaces, which dies with the keeper; mounts,
interfaces and packet filter rules go with the namespaces. So only a directory and control groups can be left.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import time
from pathlib import Path

from tools.controlplane.keeper import remove_group
from tools.node.enclosure import PREFIX
from tools.node.groups import hierarchies, processes_in

_PATIENCE = 5.0  # seconds for processes that are ending
_POLL = 0.05


def running_nodes() -> list[Path]:
    """Directories of the nodes that run."""
    return [folder for folder in _directories() if _is_kept(folder)]


def remove_leftovers() -> tuple[list[Path], list[Path]]:
    """Remove what dead nodes have left, and nothing of those that run.

    The folders that were removed, and the control groups that still have processes: they belong to a node
    whose directory is in another temporary folder (TMPDIR).
    """
    running = {folder.name for folder in running_nodes()}
    removed, used = [], []
    for name in sorted({group.name for group in _groups()} - running):
        groups = [group for group in _groups() if group.name == name]
        if _become_empty(groups):
            removed += [group for group in groups if remove_group(str(group))]
        else:
            used += groups
    for folder in _directories():
        if folder.name not in running and not _is_kept(folder):
            shutil.rmtree(folder)
            removed.append(folder)
    return removed, used


def _become_empty(groups: list[Path]) -> bool:
    """Whether processes that may be ending are gone within our patience."""
    deadline = time.monotonic() + _PATIENCE
    while processes_in(groups):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL)
    return True


def _directories() -> list[Path]:
    return sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*"))


def _groups() -> list[Path]:
    points = hierarchies(Path("/proc/mounts").read_text())
    return sorted(folder for point in points for folder in point.glob(f"{PREFIX}*"))


def _is_kept(directory: Path) -> bool:
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:  # its keeper has just removed it
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
