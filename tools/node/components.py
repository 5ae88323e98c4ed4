"""Command lines and configuration of what makes a control plane a node; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NODE_NAME = "node1"
ADDRESS = "10.200.0.2"
"""Of the node. Every node has a network of its own, so that these are the same in all."""
SERVICE_ADDRESS = "10.96.0.1"
PODS = "10.244.0.0/24"
PAUSE_IMAGE = "localhost/pause:1"

INIT, RELAY = "init", "relay"
CONTAINERD, KUBELET, PROXY = "containerd", "kubelet", "kube-proxy"
CONTROLLERS, SCHEDULER = "kube-controller-manager", "kube-scheduler"
USERS: Mapping[str, str] = {
    f"system:{CONTROLLERS}": "",
    f"system:{SCHEDULER}": "",
    f"system:{PROXY}": "",
    f"system:node:{NODE_NAME}": "system:nodes",
}
"""Who the components log in as, with the group of each."""


@dataclass(frozen=True)
class Layout:
    """Where a node keeps what; all of it is in its private directory."""

    directory: Path

    @property
    def socket(self) -> Path:
        """Where containerd answers; short, since the path of a socket has 107 bytes at most."""
        return self.directory / "containerd.sock"

    @property
    def network(self) -> Path:
        """Folder of the CNI configuration."""
        return self.directory / "cni"

    @property
    def certificates(self) -> Path:
        """Where the API server looks for its own certificate; the others are beside it."""
        return self.directory / "certs"


def apiserver_flags(certificates: Path) -> list[str]:
    """What a node's API server does otherwise than one without pods: it has an address and asks kubelets."""
    return [
        "--bind-address=0.0.0.0",  # of a network namespace that nobody else is in
        f"--advertise-address={ADDRESS}",
        "--endpoint-reconciler-type=lease",
        "--allow-privileged",
        "--enable-admission-plugins=NodeRestriction",
        "--kubelet-preferred-address-types=InternalIP",
        f"--kubelet-client-certificate={certificates / 'kubelet-client.crt'}",
        f"--kubelet-client-key={certificates / 'kubelet-client.key'}",
    ]


def controllers_command(binary: Path, layout: Layout, kubeconfig: Path) -> list[str]:
    """The controller manager; there is one, so it asks for no lease."""
    return [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        "--leader-elect=false",
        "--use-service-account-credentials",
        # Each controller makes itself a token first: with the 20 requests a second of a default, for 4 s.
        "--kube-api-qps=500",
        "--kube-api-burst=500",
        f"--flex-volume-plugin-dir={layout.directory / 'volume-plugins'}",  # it makes this folder
        f"--root-ca-file={layout.certificates / 'ca.crt'}",
        f"--service-account-private-key-file={layout.certificates / 'apiserver.key'}",
    ]


def scheduler_command(binary: Path, kubeconfig: Path) -> list[str]:
    """The scheduler; there is one, so it asks for no lease."""
    return [str(binary), f"--kubeconfig={kubeconfig}", "--leader-elect=false"]


def proxy_command(binary: Path, kubeconfig: Path, health_port: int) -> list[str]:
    """kube-proxy; connection tracking stays as the machine has it."""
    return [
        str(binary),
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={NODE_NAME}",
        f"--cluster-cidr={PODS}",
        "--proxy-mode=iptables",
        f"--healthz-bind-address=127.0.0.1:{health_port}",
        "--conntrack-max-per-core=0",
        "--conntrack-min=0",
        "--conntrack-tcp-timeout-established=0s",
        "--conntrack-tcp-timeout-close-wait=0s",
    ]


def kubelet_command(binary: Path, layout: Layout, kubeconfig: Path, configuration: Path) -> list[str]:
    """The kubelet."""
    return [
        str(binary),
        f"--config={configuration}",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={ADDRESS}",
        f"--root-dir={layout.directory / 'kubelet'}",
    ]


def kubelet_configuration(layout: Layout, group: str) -> dict[str, Any]:
    """KubeletConfiguration; `group` is the control group of this node, below the root of each hierarchy."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{group}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.certificates / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{layout.socket}",
        "volumePluginDir": str(layout.directory / "volume-plugins"),
        "resolvConf": "",  # pods have no names to look up, and the machine's file may lie in /run
        "enforceNodeAllocatable": [],
        # A disk that is nearly full already must neither evict pods nor remove images that came by import.
        "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "100Mi"},
        "imageGCHighThresholdPercent": 100,
    }


def containerd_configuration(layout: Layout, plugins: Path) -> str:
    """TOML for containerd 1.6 and newer; `plugins` is the folder of the CNI programs."""
    return f"""version = 2
root = "{layout.directory}/containerd/root"
state = "{layout.directory}/containerd/state"
[grpc]
  address = "{layout.socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{layout.directory}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true  # without it runc fails where the capability SYS_RESOURCE is missing
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{layout.network}"
"""


def network_configuration(layout: Layout) -> dict[str, Any]:
    """CNI: every pod has a wire to the node, so all its packets are routed there and services work.

    On a bridge an answer from pod to pod would go past the rules, but for a module that kernels may lack.
    """
    addresses = {
        "type": "host-local",
        "dataDir": str(layout.directory / "addresses"),
        "ranges": [[{"subnet": PODS}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "ptp", "ipam": addresses}]}


def is_ready(node: Mapping[str, Any] | None) -> bool:
    """Whether a Node object says that it takes pods."""
    conditions = (node or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
