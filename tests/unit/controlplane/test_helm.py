"""Helm is run away from the user's own configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.controlplane.errors import CommandError, ContextError
from tools.helm import KITS, Helm, helm_binary

PROGRAM = """#!/bin/sh
if [ "$1" = fail ]; then echo "it was told to" >&2; echo "and said so"; exit 3; fi
echo "$*"
cat
env
"""


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    binary = tmp_path / "helm"
    binary.write_text(PROGRAM)
    binary.chmod(0o755)
    return Helm("4", binary, tmp_path / "home")


def environ_of(text: str) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in text.splitlines() if "=" in line)


def test_it_keeps_to_its_folder_and_its_cluster(
    helm: Helm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HELM_NAMESPACE", "production")
    monkeypatch.setenv("KUBECONFIG", "/home/user/.kube/config")
    monkeypatch.setenv("AWS_PROFILE", "team")  # a kubeconfig may name a program that needs it
    said = helm.of(tmp_path / "kubeconfig")("install", "a", input="values: 1\n")
    assert said.startswith("install a\nvalues: 1\n")
    environ = environ_of(said)
    assert "HELM_NAMESPACE" not in environ
    assert environ["AWS_PROFILE"] == "team"
    assert environ["KUBECONFIG"] == str(tmp_path / "kubeconfig")
    home = str(tmp_path / "home")
    for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME", "KUBECACHEDIR"):
        assert environ[name].startswith(home), name
    assert environ_of(helm("version", input=""))["KUBECONFIG"].startswith(home), "without one it finds none"


def test_it_fails_with_its_words(helm: Helm) -> None:
    with pytest.raises(CommandError, match=r"^helm fail now failed: it was told to\nand said so$"):
        helm("fail", "now")


def test_each_major_version_has_its_kit() -> None:
    assert set(KITS) == {"3", "4"}
    with pytest.raises(ContextError, match=r"Helm 2 is not known: write 3 or 4\."):
        helm_binary("2")
