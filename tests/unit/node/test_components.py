from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from tools.node import components
from tools.node.components import Layout, is_ready

LAYOUT = Layout(Path("/tmp/astrabox-node-abc"))


def test_everything_is_written_below_the_directory_of_the_node() -> None:
    toml = tomllib.loads(components.containerd_configuration(LAYOUT, Path("/usr/lib/cni")))
    kubelet = components.kubelet_configuration(LAYOUT, "astrabox-node-abc")
    network = components.network_configuration(LAYOUT)
    opt = toml["plugins"]["io.containerd.internal.v1.opt"]["path"]
    paths = [toml["root"], toml["state"], toml["grpc"]["address"], opt, kubelet["volumePluginDir"]]
    paths.append(network["plugins"][0]["ipam"]["dataDir"])
    assert all(path.startswith("/tmp/astrabox-node-abc/") for path in paths)
    assert kubelet["cgroupRoot"] == "/astrabox-node-abc"


def test_configurations_are_the_files_they_claim_to_be() -> None:
    toml = tomllib.loads(components.containerd_configuration(LAYOUT, Path("/usr/lib/cni")))
    assert toml["plugins"]["io.containerd.grpc.v1.cri"]["sandbox_image"] == components.PAUSE_IMAGE
    kubelet = components.kubelet_configuration(LAYOUT, "g")
    assert yaml.safe_load(json.dumps(kubelet)) == kubelet
    assert kubelet["containerRuntimeEndpoint"] == f"unix://{LAYOUT.socket}"
    assert kubelet["authentication"]["anonymous"] == {"enabled": False}


def test_every_component_logs_in_as_a_user_that_has_its_rights_by_name() -> None:
    assert components.USERS["system:node:node1"] == "system:nodes"
    assert {user for user, group in components.USERS.items() if not group} == {
        "system:kube-controller-manager",
        "system:kube-scheduler",
        "system:kube-proxy",
    }


def test_nobody_waits_for_a_lease_that_only_one_can_hold() -> None:
    path = Path("x")
    for command in (
        components.controllers_command(path, LAYOUT, path),
        components.scheduler_command(path, path),
    ):
        assert "--leader-elect=false" in command


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (None, False),
        ({}, False),
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, False),
        ({"status": {"conditions": [{"type": "MemoryPressure", "status": "True"}]}}, False),
        ({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}, True),
    ],
)
def test_a_node_is_ready_when_it_says_so(node: dict[str, object] | None, *, expected: bool) -> None:
    assert is_ready(node) is expected
