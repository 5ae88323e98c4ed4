"""The command lines of kind; pure, but for `run_shown`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.controlplane.errors import StartError
from tools.controlplane.progress import Progress
from tools.controlplane.running import run_with_progress, tail
from tools.generated.paths import ROOT

NAME = "astrabox"
CONTEXT = f"kind-{NAME}"
"""As kind calls it; one that tests may write to."""
CONFIGURATION = ROOT / "e2e" / "kind.yaml"


@dataclass(frozen=True)
class KindCommands:
    """Commands for the cluster whose kubeconfig is written to this file."""

    kubeconfig: Path

    def create(self) -> list[str]:
        """Make it; it fails if there is one of this name, which is then somebody's."""
        flags = [f"--config={CONFIGURATION}", f"--kubeconfig={self.kubeconfig}", "--wait=120s"]
        return ["kind", "create", "cluster", *flags]

    def load(self, *images: str) -> list[str]:
        """Bring images of Docker to its node."""
        return ["kind", "load", "docker-image", f"--name={NAME}", *images]

    def delete(self) -> list[str]:
        """Remove it."""
        return ["kind", "delete", "cluster", f"--name={NAME}", f"--kubeconfig={self.kubeconfig}"]


def run_shown(command: Sequence[str]) -> None:
    """Run one of them, its progress shown. Raises `StartError` with what it said."""
    progress = Progress()
    progress.begin(" ".join(command[:3]))
    code, lines = run_with_progress(command, cwd=ROOT, environ=os.environ, progress=progress)
    if code:
        raise StartError(
            f"{' '.join(command)} ended with code {code}:\n{tail(lines)}\n"
            f"A cluster that an earlier run has left is removed by: kind delete cluster --name {NAME}"
        )
    progress.end()
