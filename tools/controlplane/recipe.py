"""What is built, from which committed Go module, and the name under which the result is cached."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

GO_MODULES = Path(__file__).parent / "go"
GO_REQUIREMENTS = GO_MODULES / "requirements.txt"
CONTROL_PLANE = ("kube-apiserver", "kubectl", "etcd")
FAULT_TOOLS = ("toxiproxy-server",)
NODE = ("kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy")
HELM = ("helm",)
HELM_3 = ("helm3",)
ALERTS = ("promtool",)
_KITS = (CONTROL_PLANE, FAULT_TOOLS, NODE, HELM, HELM_3, ALERTS)
"""Each is cached in a folder of its own: a change of its pins builds no other anew."""
_REVISION = 1  # raise it when the build flags below change what comes out


@dataclass(frozen=True)
class Program:
    """One binary: its package, the folder under `go/` whose go.mod pins it, and build tags."""

    module: str
    package: str
    tags: str = ""


PROGRAMS: Mapping[str, Program] = {
    "etcd": Program("etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Program("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kubectl": Program("kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
    "toxiproxy-server": Program("toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server"),
    "kube-controller-manager": Program("node", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    "kube-scheduler": Program("node", "k8s.io/kubernetes/cmd/kube-scheduler"),
    "kubelet": Program("node", "k8s.io/kubernetes/cmd/kubelet"),
    "kube-proxy": Program("node", "k8s.io/kubernetes/cmd/kube-proxy"),
    "helm": Program("helm", "helm.sh/helm/v4/cmd/helm"),
    "helm3": Program("helm3", "helm.sh/helm/v3/cmd/helm"),
    # Without the clients of all the clouds that Prometheus finds its targets in.
    "promtool": Program("promtool", "github.com/prometheus/prometheus/cmd/promtool", "remove_all_sd"),
}
REQUIRED: Mapping[str, str] = {
    "kubernetes": "k8s.io/kubernetes",
    "etcd": "go.etcd.io/etcd/server/v3",
    "toxiproxy": "github.com/Shopify/toxiproxy/v2",
    "node": "k8s.io/kubernetes",
    "helm": "helm.sh/helm/v4",
    "helm3": "helm.sh/helm/v3",
    "promtool": "github.com/prometheus/prometheus",
    "monitoring": "github.com/prometheus-operator/prometheus-operator",
}
"""What the version of each folder under `go/` is the version of."""


@dataclass(frozen=True)
class Pins:
    """The versions that the committed go.mod files name, by folder, and the oldest Go that may build them."""

    versions: Mapping[str, str]
    go: tuple[int, int, int]

    @property
    def kubernetes(self) -> str:
        """Version of Kubernetes, which node and control plane share."""
        return self.versions["kubernetes"]

    def version(self, program: Program) -> str:
        """Version of the module that a program is built from."""
        return self.versions[program.module]


def read_pins(modules: Path = GO_MODULES) -> Pins:
    """Versions of all modules, and the oldest Go that may build them."""
    texts = {name: (modules / name / "go.mod").read_text() for name in REQUIRED}
    return Pins(
        versions={name: _required(text, REQUIRED[name]) for name, text in texts.items()},
        go=max(parse_go_version(_go_line(text)) for text in texts.values()),
    )


def parse_go_version(text: str) -> tuple[int, int, int]:
    """`go1.26.8` or `1.26` as a comparable tuple; (0, 0, 0) if there is no version in the text."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def cache_key(names: Collection[str] = CONTROL_PLANE, modules: Path = GO_MODULES) -> str:
    """Name of the folder that holds the binaries of exactly these pins on this kind of machine.

    Raises ValueError for programs that are not all of one kit.
    """
    kit = next((kit for kit in _KITS if set(names) <= set(kit)), None)
    if kit is None:
        raise ValueError(f"{', '.join(names)} are not cached together")
    pins = read_pins(modules)
    used = dict.fromkeys(PROGRAMS[name].module for name in kit)
    versions = "-".join(f"{name}-{pins.versions[name]}" for name in used)
    return f"{versions}-{platform.machine()}-{_digest(modules, *used)}"


def ldflags(program: Program, kubernetes: str) -> str:
    """Linker flags; Kubernetes gets its version, which kubectl and helm refuse to do without."""
    flags = "-s -w"
    if program.package.startswith("k8s.io/kubernetes/"):
        major, minor, _ = parse_go_version(kubernetes)
        version = "k8s.io/component-base/version"
        flags += f" -X {version}.gitVersion={kubernetes}"
        flags += f" -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    return flags


def _digest(modules: Path, *names: str) -> str:
    digest = hashlib.sha256(str(_REVISION).encode())
    for name in names:
        for file in ("go.mod", "go.sum"):
            digest.update((modules / name / file).read_bytes())
    return digest.hexdigest()[:12]


def _required(go_mod: str, path: str) -> str:
    found = re.search(rf"^(?:require)?\s+{re.escape(path)} (v\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ValueError(f"go.mod does not require {path}")
    return found[1]


def _go_line(go_mod: str) -> str:
    found = re.search(r"^go (\S+)", go_mod, re.MULTILINE)
    if found is None:
        raise ValueError("go.mod has no go line")
    return found[1]
