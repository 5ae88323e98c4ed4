"""The control plane itself: it is real, it is quick, and it leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from tools.controlplane import Cluster, ControlPlane, KubectlError, StartError, ensure_binaries
from tools.controlplane.commands import Ports, free_ports
from tools.controlplane.external import ExternalCluster

CALLER = """
import sys, time
from tools.controlplane import ControlPlane
with ControlPlane() as plane:
    print(plane.directory, plane.keeper_pid, *plane.pids.values(), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def own_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def exists(pid: int) -> bool:
    """Zombies count: a process that nobody reaped is left behind as well."""
    return Path(f"/proc/{pid}").exists()


def check_for(plane: ControlPlane, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        plane.check()


def get_status(kubeconfig: Path, path: str) -> int:
    content = yaml.safe_load(kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]
    context = ssl.create_default_context(cafile=cluster["certificate-authority"])
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    request = urllib.request.Request(
        cluster["server"] + path, headers={"Authorization": f"Bearer {content['users'][0]['user']['token']}"}
    )
    try:
        with urllib.request.urlopen(request, context=context, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_is_ready_within_ten_seconds_and_two_run_side_by_side(own_temporary_folder: Path) -> None:
    ensure_binaries()
    began = time.monotonic()
    with ControlPlane() as one:
        assert time.monotonic() - began < 10
        assert json.loads(one.kubectl("version", "-o", "json"))["serverVersion"]["minor"] == "36"
        with ControlPlane() as two:
            pids = [*one.pids.values(), *two.pids.values(), one.keeper_pid, two.keeper_pid]
            assert len(set(pids)) == 6
            one.create_namespace("only-here")
            assert "only-here" in one.kubectl("get", "namespaces")
            assert "only-here" not in two.kubectl("get", "namespaces")
            assert {one.directory.parent, two.directory.parent} == {own_temporary_folder}
    assert not any(exists(pid) for pid in pids)
    assert not list(own_temporary_folder.iterdir())
    one.stop()  # once more does no harm


def test_ends_when_its_caller_is_killed(own_temporary_folder: Path) -> None:
    """The other ways for a caller to end are in test_processes.py, where a start costs nothing."""
    ensure_binaries()
    with subprocess.Popen(
        [sys.executable, "-c", CALLER], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True
    ) as caller:
        assert caller.stdout is not None
        directory, *pids = caller.stdout.readline().split()
        assert all(exists(int(pid)) for pid in pids)
        caller.kill()
        deadline = time.monotonic() + 5
        # The keeper comes first in the list; it is reaped by process 1, whenever that pleases.
        while Path(directory).exists() or any(exists(int(pid)) for pid in pids[1:]):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_service_account_has_the_rights_it_is_given_and_no_other(
    control_plane: Cluster, namespace: str
) -> None:
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "reader")
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    assert get_status(kubeconfig, leases) == 403
    control_plane.kubectl(
        "create", "role", "reader", "-n", namespace, "--verb=list", "--resource=leases.coordination.k8s.io"
    )
    control_plane.kubectl(
        *("create", "rolebinding", "reader", "-n", namespace),
        *("--role=reader", f"--serviceaccount={namespace}:reader"),
    )
    again = control_plane.service_account_kubeconfig(namespace, "reader")
    deadline = time.monotonic() + 5  # the authorizer watches roles
    while get_status(again, leases) != 200:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert get_status(again, f"/api/v1/namespaces/{namespace}/secrets") == 403
    assert again.stat().st_mode & 0o077 == 0


def test_unknown_tokens_are_refused(control_plane: Cluster, admin_kubeconfig: Path, tmp_path: Path) -> None:
    content = yaml.safe_load(admin_kubeconfig.read_text())
    content["users"][0]["user"] = {"token": "wrong"}
    forged = tmp_path / "forged"
    forged.write_text(yaml.safe_dump(content))
    assert get_status(forged, "/api/v1/namespaces") == 401


def test_components_can_be_killed_and_started_again() -> None:
    with ControlPlane() as plane:
        plane.create_namespace("kept")
        before, url = dict(plane.pids), plane.url
        plane.kill_apiserver()
        with pytest.raises(KubectlError, match="refused"):
            plane.kubectl("get", "namespaces")
        plane.start_apiserver()
        plane.kill_etcd()
        plane.start_etcd()
        assert plane.url == url
        assert "kept" in plane.kubectl("get", "namespaces")
        assert all(plane.pids[name] != before[name] for name in before)

        plane.check()
        os.kill(plane.pids["etcd"], signal.SIGKILL)
        with pytest.raises(StartError, match="etcd ended with code -9"):
            check_for(plane, seconds=5)


def test_the_end_of_the_log_is_shown_when_a_component_does_not_start(own_temporary_folder: Path) -> None:
    plane = ControlPlane(apiserver_flags=["--no-such-flag"])
    with pytest.raises(
        StartError, match=r"(?s)kube-apiserver ended with code 1.*unknown flag: --no-such-flag"
    ):
        plane.start()
    assert not list(own_temporary_folder.iterdir())


def test_ports_that_were_taken_meanwhile_are_given_up(own_temporary_folder: Path) -> None:
    offers: list[Ports] = []
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        taken = stranger.getsockname()[1]

        def choose() -> Ports:
            changes = [{"apiserver": taken}, {"etcd": taken}, {"etcd_peer": taken}, {}]
            offers.append(replace(free_ports(), **changes[len(offers)]))
            return offers[-1]

        with ControlPlane(choose_ports=choose) as plane:
            assert len(offers) == 4
            assert len(list(own_temporary_folder.iterdir())) == 1
            assert "default" in plane.kubectl("get", "namespaces")


def test_a_cluster_the_user_brought_serves_the_same_tests(control_plane: Cluster) -> None:
    with ExternalCluster(control_plane.kubeconfig, control_plane.context) as cluster:
        scratch = cluster.directory
        name = cluster.create_namespace(f"external-{os.getpid()}")
        reader = cluster.service_account_kubeconfig(name, "reader")
        assert cluster.service_account_kubeconfig(name, "reader") == reader
        assert get_status(reader, f"/api/v1/namespaces/{name}") == 403
        assert cluster.url == control_plane.url
        cluster.discard_namespace(name)
    assert not scratch.exists()
    assert control_plane.kubeconfig.exists()
