from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from e2e.images import (
    HOST,
    OPERATOR,
    Source,
    check_programs,
    docker_build_command,
    forget_unused,
    pip_settings,
)
from tools.controlplane.errors import BuildError
from tools.generated.paths import ROOT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("Containerfile", "src/a.py", "src/deep/b.py", "other/c.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize("changed", ["Containerfile", "src/a.py", "src/deep/b.py", "src/new.py"])
def test_what_an_image_is_made_of_gives_its_tag(tree: Path, changed: str) -> None:
    source = Source("image", "Containerfile", ("src",))
    before = source.tag(tree)
    assert before.startswith("localhost/image:")
    (tree / changed).write_text("changed")
    assert source.tag(tree) != before


def test_what_it_is_not_made_of_does_not(tree: Path) -> None:
    source = Source("image", "Containerfile", ("src",))
    before = source.tag(tree)
    (tree / "other/c.py").write_text("changed")
    (tree / "src/__pycache__").mkdir()
    (tree / "src/__pycache__/a.pyc").write_text("changed")
    assert source.tag(tree) == before
    shutil.move(tree / "src/a.py", tree / "src/z.py")
    assert source.tag(tree) != before


@pytest.mark.parametrize("source", [OPERATOR, HOST])
def test_all_that_a_containerfile_copies_is_in_its_tag(source: Source) -> None:
    lines = (ROOT / source.containerfile).read_text().splitlines()
    copied = [line.split()[1:-1] for line in lines if line.startswith("COPY ") and "--from" not in line]
    paths = {path.split("/")[0] for each in copied for path in each}
    assert paths == set(source.copied)
    let_in = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{path}" for path in paths} <= set(let_in)


def test_pip_of_a_build_uses_our_index_and_certificates() -> None:
    assert pip_settings({}) == ({}, [])
    arguments, volumes = pip_settings({"PIP_INDEX_URL": "https://i.invalid/", "PIP_CERT": "/etc/ssl/ca.crt"})
    assert arguments == {"PIP_INDEX_URL": "https://i.invalid/", "PIP_CERT": "/certs/ca.crt"}
    assert volumes == ["/etc/ssl:/certs:ro"]


def test_the_archives_that_were_used_last_are_kept(tmp_path: Path) -> None:
    for number in range(6):
        (tmp_path / f"localhost_image_{number:012x}.tar").touch()
        os.utime(tmp_path / f"localhost_image_{number:012x}.tar", (100 - number, 100 - number))
    (tmp_path / "localhost_image_0.1.0.tar").touch()
    (tmp_path / "localhost_other_000000000000.tar").touch()
    forget_unused(tmp_path, "image")
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == sorted(
        [f"localhost_image_{number:012x}.tar" for number in range(4)]
        + ["localhost_image_0.1.0.tar", "localhost_other_000000000000.tar"]
    )


def test_docker_builds_both_from_the_root() -> None:
    command = docker_build_command(HOST)
    assert command[:2] == ["docker", "build"]
    assert command[-1] == "."
    assert command[4:6] == ["--file", "e2e/Containerfile.astrabox"]
    assert command[3] == HOST.tag() != OPERATOR.tag()


def test_a_program_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "docker").touch(0o755)
    check_programs(("docker",), str(tmp_path), "install it")
    with pytest.raises(BuildError, match=r"^kind not found: install it"):
        check_programs(("docker", "kind"), str(tmp_path), "install it")
