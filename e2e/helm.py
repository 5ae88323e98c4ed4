"""Helm, bound to the cluster and away from the user's own configuration."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tools.controlplane import Cluster, ensure_binaries
from tools.controlplane.errors import ContextError
from tools.controlplane.recipe import HELM, HELM_3

VERSION_VARIABLE = "E2E_HELM"
TIMEOUT_SECONDS = 360.0
"""Longer than its own limit for --wait, after which it says what was not ready."""
_KITS = {"": HELM, "4": HELM, "3": HELM_3}


@dataclass(frozen=True)
class Helm:
    """`helm("install", ...)`; `home` holds all that it would keep in the user's folders."""

    binary: Path
    cluster: Cluster
    home: Path

    def __call__(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - as in subprocess.run
        """Its output; `CommandError` with its words if it fails."""
        folders = {f"HELM_{each}_HOME": str(self.home / each) for each in ("CACHE", "CONFIG", "DATA")}
        return self.cluster.run(
            [self.binary, *arguments], input=input, environ=folders, timeout=TIMEOUT_SECONDS
        )


def helm_binary(version: str) -> Path:
    """The program of this major version, built if need be; 4 by default. Raises `ControlPlaneError`."""
    kit = _KITS.get(version)
    if kit is None:
        raise ContextError(f"HELM={version} is not known: write 3 or 4.")
    return ensure_binaries(kit) / kit[0]
