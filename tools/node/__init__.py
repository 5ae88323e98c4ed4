"""A real Kubernetes node with real pods on this machine, without Docker or a registry; see `Node`."""

from tools.controlplane.errors import CommandError
from tools.node.errors import ImageError, MachineError
from tools.node.images import build_image, busybox_image, debian_base
from tools.node.node import Node

__all__ = [
    "CommandError",
    "ImageError",
    "MachineError",
    "Node",
    "build_image",
    "busybox_image",
    "debian_base",
]
