from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.controlplane.processes import Processes
from tools.node import leftovers
from tools.node.enclosure import PREFIX
from tools.node.leftovers import remove_leftovers, running_nodes


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(leftovers, "hierarchies", lambda _: [tmp_path / "groups"])
    monkeypatch.setattr(leftovers, "_PATIENCE", 0.1)
    for name in ("tmp", "groups"):
        (tmp_path / name).mkdir()
    return tmp_path


def make(machine: Path, name: str, processes: str = "") -> tuple[Path, Path]:
    """A directory and a control group, as a node has them."""
    directory, group = machine / "tmp" / name, machine / "groups" / name
    (group / "init").mkdir(parents=True)
    if processes:
        (group / "init" / "cgroup.procs").write_text(processes)
    directory.mkdir()
    (directory / "etcd").mkdir()
    return directory, group


@pytest.fixture
def locked(machine: Path) -> Iterator[Path]:
    directory, _ = make(machine, "astrabox-node-runs")
    descriptor = os.open(directory, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    yield directory
    os.close(descriptor)


def test_what_a_dead_node_left_is_removed(machine: Path) -> None:
    directory, group = make(machine, "astrabox-node-dead")
    assert remove_leftovers() == ([group, directory], [])
    assert not directory.exists()
    assert not group.exists()


def test_a_running_node_and_strangers_stay(machine: Path, locked: Path) -> None:
    stranger, _ = make(machine, "other-node")
    assert running_nodes() == [locked]
    assert remove_leftovers() == ([], [])
    assert locked.exists()
    assert (machine / "groups" / locked.name).exists()
    assert stranger.exists()


def test_a_group_with_processes_stays_where_the_directory_is_elsewhere(machine: Path) -> None:
    directory, group = make(machine, "astrabox-node-elsewhere", "1\n")
    directory.rename(machine / "other")
    assert remove_leftovers() == ([], [group])
    assert (group / "init").exists()


def test_a_keeper_locks_its_directory_until_its_end() -> None:
    processes = Processes(f"{PREFIX}unit-")
    try:
        assert processes.directory in running_nodes()
    finally:
        processes.close()
    assert processes.directory not in running_nodes()
