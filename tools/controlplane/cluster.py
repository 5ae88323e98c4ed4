"""What a test may ask of a cluster, whether we started it or the user brought it."""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from tools.controlplane.errors import CommandError, KubectlError, RequestError
from tools.controlplane.kubeconfig import write_kubeconfig

KUBECTL_TIMEOUT = 120.0


class Cluster(ABC):
    """An API server with an administrator's kubeconfig; use it as a context manager."""

    directory: Path  # private to this object, removed by stop()
    kubeconfig: Path
    kubectl_path: Path
    context: str
    url: str
    ca_file: Path

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> Self:
        """Make the cluster ready for use."""

    @abstractmethod
    def stop(self) -> None:
        """Remove all this object made on this machine; may be called again."""

    @abstractmethod
    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """POST as the administrator; `RequestError` on an error answer."""

    @abstractmethod
    def check(self) -> None:
        """Raise `StartError` if a component we started has ended by itself."""

    def discard_namespace(self, name: str) -> None:
        """Say that a namespace is not needed any more: it is deleted, without waiting."""
        self.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found")

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - as in subprocess.run
        """Output of kubectl run as the administrator; `KubectlError` if it fails."""
        done = subprocess.run(
            [
                self.kubectl_path,
                f"--kubeconfig={self.kubeconfig}",
                f"--cache-dir={self.directory / 'kubectl-cache'}",  # the user's own would know older CRDs
                *arguments,
            ],
            input=input,
            capture_output=True,
            text=True,
            check=False,
            timeout=KUBECTL_TIMEOUT,
            env=os.environ | {"KUBERC": "off"},
        )
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}", done.stderr)
        return done.stdout

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        input: str | None = None,  # noqa: A002 - as in subprocess.run
        environ: Mapping[str, str] | None = None,
        timeout: float = 300.0,
    ) -> str:
        """Output of a program that finds the API server by KUBECONFIG; `CommandError` if it fails.

        `environ` is added to our own; `timeout` is in seconds.
        """
        given = {"KUBECONFIG": str(self.kubeconfig), "KUBERC": "off"} | dict(environ or {})
        done = subprocess.run(
            list(map(str, argv)),
            input=input,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env=os.environ | given,
        )
        if done.returncode:
            raise CommandError(" ".join(map(str, argv)), done.stderr or done.stdout)
        return done.stdout

    def create_namespace(self, name: str) -> str:
        """Create a namespace; its name."""
        self.post("/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def service_account_kubeconfig(self, namespace: str, name: str, *, seconds: int = 3600) -> Path:
        """Kubeconfig of a service account, made if need be, with a token the API server issued.

        The account has no rights until a binding gives it some. `seconds` is how long the token is valid,
        at least 600.
        """
        accounts = f"/api/v1/namespaces/{namespace}/serviceaccounts"
        try:
            self.post(accounts, {"metadata": {"name": name}})
        except RequestError as error:
            if error.status != HTTPStatus.CONFLICT:
                raise
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        token = self.post(f"{accounts}/{name}/token", request)["status"]["token"]
        path = self.directory / f"{namespace}.{name}.kubeconfig"  # a namespace has no dots
        write_kubeconfig(
            path, url=self.url, ca=self.ca_file, token=token, context=self.context, namespace=namespace
        )
        return path
