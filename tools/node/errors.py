"""What this package raises on purpose beyond the errors of `tools.controlplane`, which are their base."""

from __future__ import annotations

from tools.controlplane.errors import ControlPlaneError


class MachineError(ControlPlaneError):
    """This machine cannot run a node: not root, no Linux, or packages are missing."""


class ImageError(ControlPlaneError):
    """An image could not be built or imported."""
