"""What is built, from which committed Go module, and the name under which the result is cached."""

from __future__ import annotations

import hashlib
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

GO_MODULES = Path(__file__).parent / "go"
GO_REQUIREMENTS = GO_MODULES / "requirements.txt"
CONTROL_PLANE = ("etcd", "kube-apiserver", "kubectl")
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
}


@dataclass(frozen=True)
class Pins:
    """The versions the committed go.mod files name."""

    kubernetes: str
    etcd: str
    go: tuple[int, int, int]


def read_pins(modules: Path = GO_MODULES) -> Pins:
    """Versions of Kubernetes and etcd, and the oldest Go that may build both."""
    kubernetes = (modules / "kubernetes" / "go.mod").read_text()
    etcd = (modules / "etcd" / "go.mod").read_text()
    return Pins(
        kubernetes=_required(kubernetes, "k8s.io/kubernetes"),
        etcd=_required(etcd, "go.etcd.io/etcd/server/v3"),
        go=max(parse_go_version(_go_line(text)) for text in (kubernetes, etcd)),
    )


def parse_go_version(text: str) -> tuple[int, int, int]:
    """`go1.26.8` or `1.26` as a comparable tuple; (0, 0, 0) if there is no version in the text."""
    found = re.search(r"(\d+)\.(\d+)(?:\.(\d+))?", text)
    return (int(found[1]), int(found[2]), int(found[3] or 0)) if found else (0, 0, 0)


def cache_key(modules: Path = GO_MODULES) -> str:
    """Name of the folder that holds the binaries of exactly these pins on this kind of machine."""
    pins = read_pins(modules)
    digest = hashlib.sha256(str(_REVISION).encode())
    for name in ("kubernetes", "etcd"):
        for file in ("go.mod", "go.sum"):
            digest.update((modules / name / file).read_bytes())
    return f"kubernetes-{pins.kubernetes}-etcd-{pins.etcd}-{platform.machine()}-{digest.hexdigest()[:12]}"


def ldflags(program: Program, kubernetes: str) -> str:
    """Linker flags; Kubernetes gets its version, which kubectl and helm refuse to do without."""
    flags = "-s -w"
    if program.module == "kubernetes":
        major, minor, _ = parse_go_version(kubernetes)
        version = "k8s.io/component-base/version"
        flags += f" -X {version}.gitVersion={kubernetes}"
        flags += f" -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    return flags


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
