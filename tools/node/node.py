"""One real Kubernetes node with its control plane, in namespaces of its own, from start to stop."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tools.controlplane.api import answers_ok
from tools.controlplane.binaries import ensure_binaries
from tools.controlplane.cluster import Cluster
from tools.controlplane.errors import KeeperGoneError, StartError
from tools.controlplane.plane import ControlPlane
from tools.controlplane.processes import Processes
from tools.controlplane.progress import Progress
from tools.controlplane.recipe import NODE
from tools.node import components
from tools.node.certificates import make_certificates
from tools.node.components import (
    ADDRESS,
    CONTROLLERS,
    KUBELET,
    NODE_NAME,
    PROXY,
    SCHEDULER,
    SERVICE_ADDRESS,
    Layout,
)
from tools.node.enclosure import Enclosure, open_enclosure
from tools.node.images import pause_image
from tools.node.packages import check_machine
from tools.node.runtime import import_image, start_containerd

_PROXY_BINDING = {
    "metadata": {"name": "node-proxier"},
    "roleRef": {
        "apiGroup": "rbac.authorization.k8s.io",
        "kind": "ClusterRole",
        "name": "system:node-proxier",
    },
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"system:{PROXY}"}],
}


class Node(Cluster):
    """A Kubernetes of one node that runs real pods; needs root and the packages of `packages.py`.

    It has a network, mounts, processes and control groups of its own, so nothing of it touches the machine,
    and any number can run side by side. Clients outside reach the API server through a relay on 127.0.0.1, so
    the kubeconfig works everywhere; pods and services are reached from inside only (`run(..., inside=True)`).
    Pods have no DNS and no way out: images come by `load_image`, and imagePullPolicy must not be Always.
    `ready_timeout` is in seconds, for each step.
    """

    context = ControlPlane.context

    def __init__(self, *, progress: Progress | None = None, ready_timeout: float = 90.0) -> None:
        self._progress = progress or Progress()
        self._timeout = ready_timeout
        self._plane: ControlPlane | None = None

    def start(self) -> Self:
        """Make what is missing, start all components; returns when pods can be created and use the API."""
        if self._plane is not None:
            raise StartError("this node is running already; stop() it first")
        check_machine()
        control, node = ensure_binaries(), ensure_binaries(NODE)
        pause = pause_image(progress=self._progress)
        self._plane = plane = ControlPlane(
            binaries=control,
            apiserver_flags=self._apiserver_flags,
            ready_timeout=self._timeout,
            choose_ports=lambda: self._enclosure.ports,
            users=components.USERS,
            open_processes=self._enclose,
        )
        try:
            self._progress.begin("starting the control plane of a node")
            plane.start()
            self._progress.end()
            self.url, self.ca_file = plane.url, plane.ca_file
            self.kubeconfig, self.kubectl_path = plane.kubeconfig, plane.kubectl_path
            self._progress.begin("starting the node")
            import_image(self._layout, pause)
            self._start_components(plane, node)
            for component, ready in self._conditions(plane):
                plane.wait_until(component, ready)
            self._progress.end()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End everything and remove its directory; may be called again."""
        if self._plane is not None:
            self._plane.stop()
            self._plane = None

    @property
    def keeper_pid(self) -> int:
        """The process that ends the node when this one is gone; it is in the node's network namespace."""
        return self._started.keeper_pid

    @property
    def inside(self) -> list[str]:
        """Prefix of a command that is to run in the node's network, where pods and services answer."""
        return ["nsenter", f"--net=/proc/{self.keeper_pid}/ns/net", "--"]

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        input: str | None = None,  # noqa: A002 - as in subprocess.run
        inside: bool = False,
        environ: Mapping[str, str] | None = None,
        timeout: float = 300.0,
    ) -> str:
        """The same; with `inside` it runs in the network of the node, where pods and services answer."""
        return super().run(
            [*(self.inside if inside else ()), *argv], input=input, environ=environ, timeout=timeout
        )

    def load_image(self, archive: Path) -> None:
        """Import a docker-archive under the tags it names; `ImageError` if that fails."""
        import_image(self._layout, archive)

    def logs(self, component: str) -> str:
        """Everything a component has said; `StartError` names the components if there is no such one."""
        processes = self._started.processes
        if component not in processes.pids:
            raise StartError(f"there is no component {component}; there are: {', '.join(processes.pids)}")
        return processes.log(component).read_text(errors="replace")

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST as the administrator; `RequestError` on an error answer."""
        return self._started.post(path, body)

    def check(self) -> None:
        """Raise `StartError` with the end of the log if a component has ended by itself."""
        try:
            self._started.check()
        except KeeperGoneError as error:
            raise KeeperGoneError(
                "the processes of the node have been killed; its files and control groups stay until "
                "`python -m tools.node down`"
            ) from error

    @property
    def _started(self) -> ControlPlane:
        if self._plane is None:
            raise StartError("this node is not running; start() it first")
        return self._plane

    def _enclose(self) -> Processes:
        """Open the enclosure; containerd starts at once, so that it is ready before the API server."""
        self._enclosure: Enclosure = open_enclosure()
        processes = self._enclosure.processes
        self.directory = processes.directory
        self._layout = Layout(self.directory)
        try:
            start_containerd(self._enclosure, self._layout)
        except BaseException:
            processes.close()
            raise
        return processes

    def _apiserver_flags(self, _directory: Path) -> Sequence[str]:
        make_certificates(self._layout.certificates, ["127.0.0.1", ADDRESS, SERVICE_ADDRESS])
        return components.apiserver_flags(self._layout.certificates)

    def _start_components(self, plane: ControlPlane, binaries: Path) -> None:
        layout, start = self._layout, self._enclosure.start
        plane.post("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", _PROXY_BINDING)
        configuration = layout.directory / "kubelet.json"
        configuration.write_text(json.dumps(components.kubelet_configuration(layout, self._enclosure.group)))
        user = plane.user_kubeconfig(f"system:node:{NODE_NAME}")
        start(KUBELET, components.kubelet_command(binaries / KUBELET, layout, user, configuration))
        user = plane.user_kubeconfig(f"system:{CONTROLLERS}")
        start(CONTROLLERS, components.controllers_command(binaries / CONTROLLERS, layout, user))
        user = plane.user_kubeconfig(f"system:{SCHEDULER}")
        start(SCHEDULER, components.scheduler_command(binaries / SCHEDULER, user))
        user = plane.user_kubeconfig(f"system:{PROXY}")
        health = self._enclosure.proxy_health
        start(PROXY, components.proxy_command(binaries / PROXY, user, health))

    def _conditions(self, plane: ControlPlane) -> list[tuple[str, Any]]:
        """What has to hold before a pod can be created, run and use the API; by the component to wait for."""
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        return [
            (CONTROLLERS, lambda: plane.get(account) is not None),
            (KUBELET, lambda: components.is_ready(plane.get(f"/api/v1/nodes/{NODE_NAME}"))),
            (PROXY, lambda: answers_ok(self._enclosure.proxy_health, "/healthz")),
        ]
