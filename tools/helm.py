"""Helm in both versions that the chart is for, built from Go modules, away from the user's configuration."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

from tools.controlplane.binaries import ensure_binaries
from tools.controlplane.errors import CommandError, ContextError
from tools.controlplane.recipe import HELM, HELM_3

NEWEST: Final = "4"
KITS: Final[Mapping[str, tuple[str, ...]]] = {NEWEST: HELM, "3": HELM_3}
"""What is built for each major version."""


@dataclass(frozen=True)
class Helm:
    """`helm("install", ...)`: one major version, for one cluster or for none.

    `home` holds all that it would keep in the user's folders; `timeout` is in seconds, of one command.
    """

    major: str
    binary: Path
    home: Path
    kubeconfig: Path | None = None
    timeout: float = 60.0

    def of(self, kubeconfig: Path, *, timeout: float | None = None) -> Self:
        """The same for a cluster."""
        return replace(self, kubeconfig=kubeconfig, timeout=self.timeout if timeout is None else timeout)

    @property
    def variables(self) -> dict[str, str]:
        """What keeps it to its folder and its cluster; to be added to an environment."""
        folders = {f"HELM_{each}_HOME": str(self.home / each.lower()) for each in ("CACHE", "CONFIG", "DATA")}
        # What was discovered at an address may be of another cluster that had it before.
        cache = {"KUBECACHEDIR": str(self.home / "kube")}
        return folders | cache | {"KUBECONFIG": str(self.kubeconfig or self.home / "none")}

    def __call__(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - as in subprocess.run
        """Its output. Raises `CommandError` with its words."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("HELM_")}
        done = subprocess.run(
            [self.binary, *arguments],
            input=input,
            capture_output=True,
            text=True,
            check=False,
            timeout=self.timeout,
            env=own | self.variables,
        )
        if done.returncode:
            raise CommandError(f"helm {' '.join(arguments)}", done.stderr + done.stdout)
        return done.stdout


def helm_binary(major: str) -> Path:
    """The program of this major version, built if need be. Raises `ControlPlaneError`."""
    kit = KITS.get(major)
    if kit is None:
        raise ContextError(f"Helm {major} is not known: write {' or '.join(sorted(KITS))}.")
    return ensure_binaries(kit) / kit[0]


def helm_of(major: str, home: Path) -> Helm:
    """This major version, built if need be, with a folder of its own. Raises `ControlPlaneError`."""
    return Helm(major, helm_binary(major), home)
