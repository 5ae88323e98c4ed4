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
CONTROL_PLANE = ("etcd", "kube-apiserver", "kubectl")
FAULT_TOOLS = ("toxiproxy-server",)
"""Cached in a folder of their own: a change of their pins does not build the control plane anew."""
_REVISION = 1  # raise it when the build flags below change what comes out


@dataclass(frozen=True)
class Program:
    """One binary: its package, and the folder under `go/` whose go.mod pins it."""

    module: str
    package: str


PROGRAMS: Mapping[str, Program] = {
    "etcd": Program("etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Program("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kubectl": Program("kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
    "toxiproxy-server": Program("toxiproxy", "github.com/Shopify/toxiproxy/v2/cmd/server"),
}


@dataclass(frozen=True)
class Pins:
    """The versions the committed go.mod files name."""

    kubernetes: str
    etcd: str
    toxiproxy: str
    go: tuple[int, int, int]

    def version(self, program: Program) -> str:
        """Version of the module that a program is built from."""
        versions = {"kubernetes": self.kubernetes, "etcd": self.etcd, "toxiproxy": self.toxiproxy}
        return versions[program.module]


def read_pins(modules: Path = GO_MODULES) -> Pins:
    """Versions of all modules, and the oldest Go that may build them."""
    kubernetes, etcd, toxiproxy = (
        (modules / name / "go.mod").read_text() for name in ("kubernetes", "etcd", "toxiproxy")
    )
    return Pins(
        kubernetes=_required(kubernetes, "k8s.io/kubernetes"),
        etcd=_required(etcd, "go.etcd.io/etcd/server/v3"),
        toxiproxy=_required(toxiproxy, "github.com/Shopify/toxiproxy/v2"),
        go=max(parse_go_version(_go_line(text)) for text in (kubernetes, etcd, toxiproxy)),
    )


def parse_go_version(text: str) -> tuple[int, int, int]:
    """`go1.26.8` or `1.26` as a comparable tuple; (0, 0, 0) if there is no version in the text."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def cache_key(names: Collection[str] = CONTROL_PLANE, modules: Path = GO_MODULES) -> str:
    """Name of the folder that holds the binaries of exactly these pins on this kind of machine."""
    pins = read_pins(modules)
    if set(names) <= set(FAULT_TOOLS):
        return f"toxiproxy-{pins.toxiproxy}-{platform.machine()}-{_digest(modules, 'toxiproxy')}"
    digest = _digest(modules, "kubernetes", "etcd")
    return f"kubernetes-{pins.kubernetes}-etcd-{pins.etcd}-{platform.machine()}-{digest}"


def ldflags(program: Program, kubernetes: str) -> str:
    """Linker flags; Kubernetes gets its version, which kubectl and helm refuse to do without."""
    flags = "-s -w"
    if program.module == "kubernetes":
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
