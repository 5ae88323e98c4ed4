"""Everything this package raises on purpose; each text ends with what to do about it."""

from __future__ import annotations


class ControlPlaneError(Exception):
    """Base of all errors of this package."""


class BuildError(ControlPlaneError):
    """A binary could not be found, fetched or compiled."""


class ContextError(ControlPlaneError):
    """The given kubeconfig points at a cluster that tests must not write to."""


class StartError(ControlPlaneError):
    """etcd or kube-apiserver ended early or did not become ready in time."""


class KeeperGoneError(StartError):
    """The process that keeps the components has ended, and they with it."""


class PortTakenError(StartError):
    """Another process took a port between our choosing and binding it."""


class CommandError(ControlPlaneError):
    """A program that was run against the cluster ended with an error; `stderr` holds its words."""

    def __init__(self, command: str, stderr: str) -> None:
        super().__init__(f"{command} failed: {stderr.strip()}")
        self.stderr = stderr


class KubectlError(CommandError):
    """The same of kubectl."""


class RequestError(ControlPlaneError):
    """The API server answered a request with an error status."""

    def __init__(self, path: str, status: int, body: str, *, method: str = "POST") -> None:
        super().__init__(f"{method} {path} answered {status}: {body.strip()[:500]}")
        self.status = status
