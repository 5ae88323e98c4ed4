"""A real kube-apiserver, etcd and kubectl for tests and demos; see `open_cluster` and `ControlPlane`."""

from tools.controlplane.binaries import ensure_binaries
from tools.controlplane.cluster import Cluster
from tools.controlplane.errors import (
    BuildError,
    ContextError,
    ControlPlaneError,
    KubectlError,
    RequestError,
    StartError,
)
from tools.controlplane.external import ExternalCluster
from tools.controlplane.plane import ControlPlane, open_cluster

__all__ = [
    "BuildError",
    "Cluster",
    "ContextError",
    "ControlPlane",
    "ControlPlaneError",
    "ExternalCluster",
    "KubectlError",
    "RequestError",
    "StartError",
    "ensure_binaries",
    "open_cluster",
]
