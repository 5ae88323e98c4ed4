from __future__ import annotations

from pathlib import Path

import pytest

from tools.controlplane.keeper import remove_group
from tools.node.errors import MachineError
from tools.node.groups import create_groups, hierarchies, place, processes_in

MIXED = """tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0
cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
"""


def test_every_hierarchy_is_found_version_2_first() -> None:
    names = [path.name for path in hierarchies(MIXED)]
    assert names == ["unified", "cpu", "pids"]
    assert hierarchies("cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n") == [Path("/sys/fs/cgroup")]


def test_controllers_of_version_2_are_handed_down(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("cpu\n")
    create_groups([tmp_path / "node"])
    assert (tmp_path / "cgroup.subtree_control").read_text() == "+memory"
    (tmp_path / "node" / "cgroup.controllers").write_text("cpu\n")
    (tmp_path / "node" / "cgroup.subtree_control").write_text("")
    create_groups([tmp_path / "node"])
    assert (tmp_path / "node" / "cgroup.subtree_control").read_text() == "+cpu"


def test_a_group_of_version_1_has_nothing_to_hand_down(tmp_path: Path) -> None:
    create_groups([tmp_path / "node"])
    assert list(tmp_path.iterdir()) == [tmp_path / "node"]
    assert list((tmp_path / "node").iterdir()) == []


def test_a_process_is_put_into_one_leaf_only(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    create_groups(folders)
    place(42, folders)
    assert (tmp_path / "a" / "init" / "cgroup.procs").read_text() == "42"
    assert not (tmp_path / "b" / "init").exists()


def test_no_hierarchy_that_takes_a_process_is_an_error() -> None:
    with pytest.raises(MachineError, match="No hierarchy"):
        place(42, [])


def test_processes_are_found_at_any_depth(tmp_path: Path) -> None:
    for path, processes in (("a", ""), ("a/pods/one", "1\n2\n"), ("b/init", "3\n")):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "cgroup.procs").write_text(processes)
    assert processes_in([tmp_path / "a", tmp_path / "b", tmp_path / "none"]) == {1, 2, 3}


def test_groups_are_removed_from_the_leaves_up(tmp_path: Path) -> None:
    (tmp_path / "node" / "pods" / "one").mkdir(parents=True)
    assert remove_group(str(tmp_path / "node"))
    assert not (tmp_path / "node").exists()
    assert remove_group(str(tmp_path / "node"))


def test_a_group_that_is_in_use_stays_and_is_told(tmp_path: Path) -> None:
    (tmp_path / "node" / "used").mkdir(parents=True)
    (tmp_path / "node" / "used" / "busy").touch()  # stands in for a process: the folder cannot be removed
    assert not remove_group(str(tmp_path / "node"))
