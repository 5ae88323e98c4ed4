"""The processes of the demo: a control plane, two operators, two AstraBox hosts, each with its own rights."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from astrabox.host_client import HostClient
from tools.controlplane import Cluster, ControlPlane
from tools.controlplane.processes import Processes
from tools.generated.paths import ROOT

NAMESPACE = "astrabox"
OPERATORS = ("operator-1", "operator-2")
HOSTS = ("astrabox-1", "astrabox-2")
_READY_SECONDS = 40.0


@dataclass(frozen=True)
class Stage:
    """A running set-up; `folder` holds sockets, logs and the record of handler calls."""

    cluster: Cluster
    processes: Processes
    ports: Mapping[str, int]

    @property
    def folder(self) -> Path:
        """Private to this demo and removed at its end."""
        return self.processes.directory

    def calls(self) -> list[dict[str, Any]]:
        """Every handler call of both hosts, in the order of their lines."""
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def connect(self, host: str) -> Any:
        """A connection to a host, as AstraBox's own API layer would use its provider."""
        return HostClient.connect(self.folder / f"{host}.sock", within=_READY_SECONDS)

    def kubectl(self, *arguments: str) -> str:
        """Output of kubectl in the demo's namespace."""
        return self.cluster.kubectl("-n", NAMESPACE, *arguments)

    def metric(self, operator: str, name: str) -> float:
        """The value of one of an operator's metrics, summed over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[operator]}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        values = [line.rsplit(" ", 1)[1] for line in lines if line.split("{")[0].split(" ")[0] == name]
        return sum(map(float, values))

    def failure(self) -> str | None:
        """Which process has ended, and the end of its log; None while all run."""
        for name, code in self.processes.exited().items():
            return f"{name} has ended with exit code {code}:\n{self.processes.log_tail(name)}"
        return None

    async def ready(self) -> None:
        """Wait until operators and hosts can be used. Raises RuntimeError with the end of a log."""
        try:
            async with asyncio.timeout(_READY_SECONDS):
                while not all(self._is_ready(name) for name in OPERATORS) or not all(
                    (self.folder / f"{name}.sock").exists() for name in HOSTS
                ):
                    if failure := self.failure():
                        raise RuntimeError(failure)
                    await asyncio.sleep(0.2)
        except TimeoutError:
            logs = "\n".join(f"{name}:\n{self.processes.log_tail(name, 5)}" for name in (*OPERATORS, *HOSTS))
            raise RuntimeError(f"not ready after {_READY_SECONDS:.0f} s\n{logs}") from None

    def stop(self) -> dict[str, int]:
        """End hosts and operators in order, as a rolling update would; their exit codes."""
        for name in (*HOSTS, *OPERATORS):
            self.processes.kill(name, signal.SIGTERM)
        return self.processes.exited()

    def _is_ready(self, operator: str) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.ports[operator]}/readyz", timeout=2
            ) as answer:
                return bool(answer.status == HTTPStatus.OK)
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False


@contextmanager
def set_up() -> Iterator[Stage]:
    """Start everything; ends all of it, also when the body fails or is interrupted."""
    with ControlPlane() as cluster:
        cluster.create_namespace(NAMESPACE)
        cluster.kubectl("apply", "-f", str(ROOT / "crds" / "manifests"))
        cluster.kubectl("-n", NAMESPACE, "apply", "-f", str(ROOT / "deploy"))
        astrabox = cluster.service_account_kubeconfig(NAMESPACE, "astrabox")
        operator = cluster.service_account_kubeconfig(NAMESPACE, "astrabox-scheduler-operator")
        cluster.kubectl(
            "-n", NAMESPACE, "create", "rolebinding", "astrabox",
            "--role=astrabox-scheduler-provider", f"--serviceaccount={NAMESPACE}:astrabox",
        )  # fmt: skip
        processes = Processes("astrabox-demo-")
        try:
            ports = {name: _free_port() for name in OPERATORS}
            for name, port in ports.items():
                _start_operator(processes, name, port, operator)
            stage = Stage(cluster, processes, ports)
            _wait_for_an_operator(stage)
            for name in HOSTS:
                _start_host(processes, name, astrabox)
            yield stage
        finally:
            processes.close()


def _wait_for_an_operator(stage: Stage) -> None:
    """AstraBox refuses to start where no operator was ever installed, so one has to be first."""
    stage.kubectl(
        "wait", "--for=create", "lease", "--timeout=30s", "-l", "scheduler.astrabox.io/role=operator"
    )


def _start_operator(processes: Processes, name: str, port: int, kubeconfig: Path) -> None:
    settings = {
        "ASTRABOX_SCHEDULER_OPERATOR_KUBECONFIG": str(kubeconfig),
        "ASTRABOX_SCHEDULER_OPERATOR_HEALTH_HOST": "127.0.0.1",
        "ASTRABOX_SCHEDULER_OPERATOR_HEALTH_PORT": str(port),
    }
    processes.start(name, _command(settings, "astrabox_scheduler_operator"))


def _start_host(processes: Processes, name: str, kubeconfig: Path) -> None:
    folder = processes.directory
    settings = {
        "ASTRABOX_SCHEDULER_PROVIDER": "kubernetes",
        "ASTRABOX_SCHEDULER_KUBERNETES_KUBECONFIG": str(kubeconfig),
    }
    command = _command(
        settings, "astrabox.host", "--name", name, "--socket", str(folder / f"{name}.sock"),
        "--record", str(folder / "calls.jsonl"), "--deployments", str(folder / "deployments"),
    )  # fmt: skip
    processes.start(name, command)


def _command(settings: Mapping[str, str], module: str, *arguments: str) -> list[str]:
    """A command whose environment has of our settings only these, whatever the caller's shell exports."""
    ours = [name for name in os.environ if name.startswith("ASTRABOX_")]
    unset = [part for name in ours for part in ("-u", name)]
    values = [f"{name}={value}" for name, value in settings.items()]
    return ["/usr/bin/env", *unset, *values, sys.executable, "-m", module, *arguments]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
