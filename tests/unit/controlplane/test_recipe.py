from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tools.controlplane.recipe import (
    FAULT_TOOLS,
    GO_MODULES,
    GO_REQUIREMENTS,
    PROGRAMS,
    cache_key,
    ldflags,
    parse_go_version,
    read_pins,
)
from tools.controlplane.toolchain import go_environment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("go version go1.26.8 linux/amd64", (1, 26, 8)),
        ("go version go1.19 linux/amd64", (1, 19, 0)),
        ("go version devel go1.27-abcdef linux/arm64", (1, 27, 0)),
        ("1.26rc1", (1, 26, 0)),
        ("", (0, 0, 0)),
    ],
)
def test_go_versions_compare_as_numbers(text: str, expected: tuple[int, int, int]) -> None:
    assert parse_go_version(text) == expected


def test_the_pinned_versions_are_read_from_the_committed_modules() -> None:
    pins = read_pins()
    assert pins.kubernetes.startswith("v1.")
    assert pins.versions["etcd"].startswith("v3.")
    assert pins.go >= (1, 26, 0)


def test_the_pinned_toolchain_is_new_enough_for_the_modules() -> None:
    assert parse_go_version(GO_REQUIREMENTS.read_text().split("==")[1]) >= read_pins().go


def test_every_program_is_a_tool_of_its_module() -> None:
    for program in PROGRAMS.values():
        assert program.package in (GO_MODULES / program.module / "go.mod").read_text()


@pytest.mark.parametrize("file", ["kubernetes/go.mod", "kubernetes/go.sum", "etcd/go.mod", "etcd/go.sum"])
def test_the_cache_key_changes_with_each_pinned_file(tmp_path: Path, file: str) -> None:
    modules = tmp_path / "go"
    shutil.copytree(GO_MODULES, modules)
    assert cache_key(modules=modules) == cache_key()
    with (modules / file).open("a") as changed:
        changed.write("\n")
    assert cache_key(modules=modules) != cache_key()
    assert cache_key(FAULT_TOOLS, modules) == cache_key(FAULT_TOOLS)


def test_other_pins_of_the_fault_tools_build_no_control_plane_anew(tmp_path: Path) -> None:
    modules = tmp_path / "go"
    shutil.copytree(GO_MODULES, modules)
    with (modules / "toxiproxy" / "go.sum").open("a") as changed:
        changed.write("\n")
    assert cache_key(modules=modules) == cache_key()
    assert cache_key(FAULT_TOOLS, modules) != cache_key(FAULT_TOOLS)
    assert cache_key(FAULT_TOOLS).startswith(f"toxiproxy-{read_pins().versions['toxiproxy']}-")


def test_the_cache_key_names_the_versions() -> None:
    pins = read_pins()
    assert cache_key().startswith(f"kubernetes-{pins.kubernetes}-etcd-{pins.versions['etcd']}-")


def test_kubernetes_is_stamped_with_its_version() -> None:
    flags = ldflags(PROGRAMS["kubectl"], "v1.36.3")
    for stamp in ("gitVersion=v1.36.3", "gitMajor=1", "gitMinor=36"):
        assert f"-X k8s.io/component-base/version.{stamp}" in flags
    assert "-X" not in ldflags(PROGRAMS["etcd"], "v1.36.3")


def test_settings_of_the_user_cannot_change_the_build() -> None:
    users = {"GOFLAGS": "-mod=vendor", "GOOS": "plan9", "GOROOT": "/x", "GOTOOLCHAIN": "auto", "GOWORK": "/y"}
    environ = go_environment(users | {"GOPROXY": "a-mirror", "GOCACHE": "/cache"})
    assert environ["GOFLAGS"].startswith("-mod=readonly")
    assert environ["GOTOOLCHAIN"] == "local"
    assert environ["GOWORK"] == "off"
    assert {"GOOS", "GOROOT"}.isdisjoint(environ)
    assert (environ["GOPROXY"], environ["GOCACHE"]) == ("a-mirror", "/cache")
