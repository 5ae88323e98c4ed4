"""A real node: pods run on it, and nothing of it stays, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.node.traces import Traces, machine_state, traces_of
from tools.node import CommandError, Node, build_image, busybox_image, debian_base
from tools.node.leftovers import running_nodes

pytestmark = [pytest.mark.node, pytest.mark.timeout(180)]
ROOT = Path(__file__).parents[2]
BUSYBOX = "localhost/busybox:1"
READY_SECONDS = 15.0  # 6 s on two idle cores; the goal is 7
CALLER = """
import time
from pathlib import Path
from tools.controlplane.errors import ControlPlaneError
from tools.node import Node
node = Node().start()
node.load_image(Path({image!r}))
{more}
print(node.keeper_pid, node.directory, flush=True)
try:
    while True:
        node.check()
        time.sleep(0.1)
except ControlPlaneError as error:
    print(error, flush=True)
    time.sleep(600)
"""
CLIENT = """
import json, os, ssl, urllib.request
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
address = os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
path = f"/api/v1/namespaces/{open(folder + 'namespace').read()}/pods/client"
request = urllib.request.Request(
    f"https://{address}{path}", headers={"Authorization": "Bearer " + open(folder + "token").read()}
)
context = ssl.create_default_context(cafile=folder + "ca.crt")
print(json.load(urllib.request.urlopen(request, context=context, timeout=10))["metadata"]["name"])
"""


@pytest.fixture(scope="module")
def image() -> Path:
    return busybox_image(BUSYBOX)


@pytest.fixture
def untouched() -> Iterator[None]:
    """The machine is as it was before."""
    before = machine_state()
    yield
    after = machine_state()
    for kind, things in after.items():
        assert [thing for thing in things if thing not in before[kind]] == [], kind


@pytest.fixture
def node(untouched: None, image: Path) -> Iterator[Node]:
    with Node() as made:
        made.load_image(image)
        yield made


def pod(node: Node, name: str, script: str, *flags: str) -> None:
    node.kubectl(
        "run", name, f"--image={BUSYBOX}", "--image-pull-policy=Never", "--restart=Never", *flags,
        "--command", "--", "sh", "-c", script,
    )  # fmt: skip


def wait(node: Node, name: str, condition: str) -> None:
    node.kubectl("wait", f"--for={condition}", f"pod/{name}", "--timeout=60s")


SUCCEEDED = "jsonpath={.status.phase}=Succeeded"


def gone(traces: Traces, directory: Path) -> None:
    assert len(traces.processes) > 10
    assert len(traces.namespaces) > 5
    deadline = time.monotonic() + 5  # the kernel ends the last of a killed keeper's by itself
    while (left := traces.left()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert not directory.exists()


def test_a_pod_runs_and_nothing_stays(untouched: None, image: Path) -> None:
    began = time.monotonic()
    with Node() as node:
        assert time.monotonic() - began < READY_SECONDS
        node.load_image(image)
        pod(node, "stays", "sleep 600")
        pod(node, "ends", "echo done at last")
        wait(node, "ends", SUCCEEDED)
        wait(node, "stays", "condition=Ready")
        assert node.kubectl("logs", "ends") == "done at last\n"
        assert node.kubectl("exec", "stays", "--", "echo", "inside") == "inside\n"
        assert node.directory in running_nodes()
        traces = traces_of(node.keeper_pid, node.directory)
        assert {"sh", "sleep", "containerd-shim"} & {each.name for each in traces.processes.values()}
    gone(traces, node.directory)
    assert node.directory not in running_nodes()


@pytest.mark.timeout(600)  # the base image is made once, which takes about a minute
def test_a_pod_of_python_uses_the_api_as_its_service_account(
    untouched: None, tmp_path: Path, image: Path
) -> None:
    (tmp_path / "client.py").write_text(CLIENT)
    (tmp_path / "Containerfile").write_text(
        'ARG BASE\nFROM ${BASE}\nCOPY client.py /\nRUN python --version\nCMD ["python", "/client.py"]\n'
    )
    base = debian_base("localhost/python:slim")
    archive = build_image(tmp_path / "Containerfile", "localhost/client:1", base, tmp_path)
    with Node() as node:
        node.load_image(archive)
        node.kubectl(
            "create", "rolebinding", "view", "--clusterrole=view", "--serviceaccount=default:default"
        )
        node.kubectl("run", "client", "--image=localhost/client:1", "--restart=Never")
        wait(node, "client", SUCCEEDED)
        assert node.kubectl("logs", "client") == "client\n"


def test_a_service_leads_from_pod_to_pod_and_from_inside(node: Node) -> None:
    pod(node, "web", "mkdir /www; echo hello > /www/index.html; httpd -f -p 80 -h /www", "--port=80")
    wait(node, "web", "condition=Ready")
    node.kubectl("expose", "pod", "web", "--port=8080", "--target-port=80")
    address = node.kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    ask = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {address} 8080"
    pod(node, "client", f"for i in $(seq 50); do {ask} | grep hello && exit; sleep 0.2; done; exit 1")
    wait(node, "client", SUCCEEDED)
    assert node.kubectl("logs", "client") == "hello\n"
    assert "hello" in node.run(["sh", "-c", ask.replace("nc -w", "busybox nc -w")], inside=True)
    assert node.run([node.kubectl_path, "get", "pod", "web", "-o", "name"]) == "pod/web\n"
    with pytest.raises(CommandError, match="no-such"):
        node.run([node.kubectl_path, "get", "pod", "no-such"], inside=True)


def test_a_second_node_runs_beside_the_first(node: Node, image: Path) -> None:
    with Node() as other:
        other.load_image(image)
        for each in (node, other):
            pod(each, "ends", f"echo {each.directory}")
        for each in (node, other):
            wait(each, "ends", SUCCEEDED)
            assert each.kubectl("logs", "ends") == f"{each.directory}\n"
        assert set(running_nodes()) >= {node.directory, other.directory}
    assert node.kubectl("get", "pods", "-o", "name") == "pod/ends\n"


def kill(caller: subprocess.Popen[str], _keeper: int) -> None:
    caller.kill()


def kill_both(caller: subprocess.Popen[str], keeper: int) -> None:
    os.kill(keeper, signal.SIGKILL)
    caller.kill()


def kill_the_keeper(caller: subprocess.Popen[str], keeper: int) -> None:
    os.kill(keeper, signal.SIGKILL)
    assert caller.stdout is not None
    assert caller.stdout.readline().endswith("stay until `python -m tools.node down`\n")
    caller.kill()


@pytest.mark.parametrize("end", [kill, kill_both, kill_the_keeper])
def test_what_a_killed_owner_leaves_is_removed(
    untouched: None, image: Path, end: Callable[[subprocess.Popen[str], int], None]
) -> None:
    run = f"node.kubectl('run', 'stays', '--image={BUSYBOX}', '--command', '--', 'sleep', '600')\n"
    run += "node.kubectl('wait', '--for=condition=Ready', 'pod/stays', '--timeout=60s')"
    with subprocess.Popen(
        [sys.executable, "-c", CALLER.format(image=str(image), more=run)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as caller:
        assert caller.stdout is not None
        keeper, name = caller.stdout.readline().split()
        directory = Path(name)
        traces = traces_of(int(keeper), directory)
        end(caller, int(keeper))
    if end is kill:
        deadline = time.monotonic() + 10
        while directory.exists() and time.monotonic() < deadline:  # the keeper is at it
            time.sleep(0.05)
    else:
        assert directory.exists()
    done = subprocess.run(
        [sys.executable, "-m", "tools.node", "down"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert (f"removed {directory}" in done.stdout) is (end is not kill)
    gone(traces, directory)


def test_down_leaves_a_running_node_alone(node: Node) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.node", "down"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert f"{node.directory} is running" in done.stderr
    assert str(node.directory) not in done.stdout
    node.check()
    assert node.kubectl("get", "nodes", "-o", "name") == "node/node1\n"
