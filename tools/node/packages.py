"""The Debian packages that a node needs, and a check that names those that are missing."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from tools.node.errors import MachineError

CNI = Path("/usr/lib/cni")
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where the programs are looked for; root's own PATH may lack the folders that end in sbin."""

RUN: Mapping[str, str] = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": str(CNI / "ptp"),
    "iptables": "iptables",
    "iproute2": "ip",
    "openssl": "openssl",
}
"""What running a node takes: each package, and the program that shows it is there."""

BUILD: Mapping[str, str] = {
    "buildah": "buildah",
    "busybox-static": "busybox",
    "mmdebstrap": "mmdebstrap",
}
"""What making images takes."""


def missing_packages(path: str = SEARCH) -> list[str]:
    """Packages whose program is not there: another package may have brought it, so dpkg is not asked."""
    return [
        package for package, program in {**RUN, **BUILD}.items() if shutil.which(program, path=path) is None
    ]


def check_machine() -> None:
    """Raise `MachineError`, with what to do, if a node cannot run here."""
    _refuse(missing_packages())


def check_user() -> None:
    """Raise `MachineError` if nodes of this machine cannot be looked after; that takes no packages."""
    _refuse(())


def _refuse(missing: Collection[str]) -> None:
    if complaint := machine_complaint(sys.platform, os.geteuid(), missing):
        raise MachineError(complaint)


def machine_complaint(platform: str, user: int, missing: Collection[str]) -> str:
    """Say what keeps a node from running and what to do about it; empty if nothing does."""
    if platform != "linux":
        return "A node needs Linux; use a virtual machine, or a cluster of yours (ASTRABOX_TEST_KUBECONFIG)."
    if user:
        return "A node needs root (namespaces, mounts, control groups); run this with sudo."
    if missing:
        return (
            f"A node needs packages that are missing: {', '.join(missing)}.\n"
            f"On Debian and Ubuntu: apt-get install --no-install-recommends {' '.join(missing)}"
        )
    return ""
