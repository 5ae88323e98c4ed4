from __future__ import annotations

from pathlib import Path

import pytest

from tools.controlplane import BuildError, ContextError, ControlPlane, ExternalCluster, open_cluster
from tools.controlplane.binaries import binary_folder, ensure_binaries, missing_binaries
from tools.controlplane.recipe import ALERTS, CONTROL_PLANE, FAULT_TOOLS, HELM, HELM_3, NODE, PROGRAMS
from tools.controlplane.sources import allowed_contexts, cache_root, check_context, external_kubeconfig


def kubeconfig(folder: Path, context: str) -> str:
    path = folder / "config"
    path.write_text(f"current-context: {context}\n")
    return str(path)


def program(path: Path) -> None:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


@pytest.mark.parametrize("context", ["astrabox-test", "kind-astrabox"])
def test_our_own_contexts_are_accepted(tmp_path: Path, context: str) -> None:
    given = kubeconfig(tmp_path, context)
    assert external_kubeconfig({"ASTRABOX_TEST_KUBECONFIG": given}) == (Path(given), context)


@pytest.mark.parametrize("context", ["production", "kind-astrabox-2", "KIND-ASTRABOX", "astrabox-test "])
def test_other_contexts_are_refused_and_the_error_says_what_to_do(context: str) -> None:
    with pytest.raises(ContextError) as refused:
        check_context({"current-context": context}, Path("/some/config"), allowed_contexts({}))
    assert repr(context) in str(refused.value)
    assert "kubectl config use-context" in str(refused.value)
    assert f"ASTRABOX_TEST_CONTEXTS={context}" in str(refused.value)


def test_the_user_may_add_contexts(tmp_path: Path) -> None:
    environ = {
        "ASTRABOX_TEST_KUBECONFIG": kubeconfig(tmp_path, "staging"),
        "ASTRABOX_TEST_CONTEXTS": "other, staging,,",
    }
    assert allowed_contexts(environ) == ("astrabox-test", "kind-astrabox", "other", "staging")
    found = external_kubeconfig(environ)
    assert found is not None
    assert found[1] == "staging"


@pytest.mark.parametrize(
    "content", ["", "[]", "current-context: ''", "current-context: 7", "a: b: c", "\x00"]
)
def test_a_file_without_a_usable_context_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ContextError):
        external_kubeconfig({"ASTRABOX_TEST_KUBECONFIG": str(path)})


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContextError, match="cannot be read"):
        external_kubeconfig({"ASTRABOX_TEST_KUBECONFIG": str(tmp_path / "none")})


def test_a_given_cluster_goes_before_everything_else(tmp_path: Path) -> None:
    environ = {"ASTRABOX_TEST_KUBECONFIG": kubeconfig(tmp_path, "kind-astrabox"), "KUBEBUILDER_ASSETS": "/x"}
    assert isinstance(open_cluster(environ), ExternalCluster)
    # An empty variable is as good as none.
    assert isinstance(open_cluster(environ | {"ASTRABOX_TEST_KUBECONFIG": ""}), ControlPlane)


def test_given_assets_go_before_the_cache(tmp_path: Path) -> None:
    for name in CONTROL_PLANE:
        program(tmp_path / name)
    assert (
        ensure_binaries(environ={"KUBEBUILDER_ASSETS": str(tmp_path), "XDG_CACHE_HOME": "/nowhere"})
        == tmp_path
    )


def test_incomplete_assets_are_an_error_that_names_what_is_missing(tmp_path: Path) -> None:
    program(tmp_path / "etcd")
    (tmp_path / "kubectl").write_text("not executable")
    with pytest.raises(BuildError, match=r"has no executable kube-apiserver, kubectl\.\nPoint it at"):
        ensure_binaries(environ={"KUBEBUILDER_ASSETS": str(tmp_path)})


def test_a_binary_counts_as_cached_only_with_its_digest(tmp_path: Path) -> None:
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"  # of nothing
    assert missing_binaries(tmp_path, ["etcd"]) == ["etcd"]
    (tmp_path / "etcd").touch(0o755)
    assert missing_binaries(tmp_path, ["etcd"]) == ["etcd"]
    (tmp_path / "etcd.sha256").write_text(digest)
    assert missing_binaries(tmp_path, ["etcd"]) == []
    (tmp_path / "etcd").write_text("corrupt")
    assert missing_binaries(tmp_path, ["etcd"]) == ["etcd"]


def test_the_cache_is_outside_the_tree_and_follows_the_environment(tmp_path: Path) -> None:
    assert cache_root({"XDG_CACHE_HOME": "/c", "HOME": "/h"}) == Path("/c/astrabox-scheduler/controlplane")
    assert cache_root({"HOME": "/h"}) == Path("/h/.cache/astrabox-scheduler/controlplane")
    assert cache_root({"XDG_CACHE_HOME": "relative", "HOME": "/h"}).is_relative_to("/h/.cache")
    assert binary_folder({"XDG_CACHE_HOME": "/c"}).parent == Path("/c/astrabox-scheduler/controlplane")


def test_a_cache_that_cannot_be_written_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "astrabox-scheduler").write_text("a file in the way")
    with pytest.raises(BuildError, match="set XDG_CACHE_HOME to a folder that can be written to"):
        ensure_binaries(environ={"XDG_CACHE_HOME": str(tmp_path)})


def test_every_program_of_the_control_plane_can_be_built() -> None:
    assert {*CONTROL_PLANE, *FAULT_TOOLS, *NODE, *HELM, *HELM_3, *ALERTS} == set(PROGRAMS)
