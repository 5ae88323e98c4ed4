"""A cluster the user brought, such as one made by kind."""

from __future__ import annotations

import base64
import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, Self

from tools.controlplane.binaries import binary_folder, missing_binaries
from tools.controlplane.cluster import Cluster
from tools.controlplane.errors import BuildError, KubectlError, RequestError
from tools.controlplane.kubeconfig import write_private
from tools.controlplane.sources import ASSETS_VARIABLE


class ExternalCluster(Cluster):
    """A cluster the user brought; nothing is started, and the kubeconfig is a private, pinned copy."""

    def __init__(self, source: Path, context: str, environ: Mapping[str, str] | None = None) -> None:
        self._source = source
        self._environ = os.environ if environ is None else environ
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self.context = context

    def start(self) -> Self:
        """Copy the one context, so that switching it in the user's file cannot redirect a test."""
        self._scratch = tempfile.TemporaryDirectory(prefix="astrabox-external-")
        self.directory = Path(self._scratch.name)
        try:
            self.kubectl_path = _find_kubectl(self._environ)
            self.kubeconfig = self._source
            pinned = self.kubectl(
                "config", "view", "--raw", "--minify", "--flatten", "-o", "json", f"--context={self.context}"
            )
            self.kubeconfig = self.directory / "admin.kubeconfig"
            write_private(self.kubeconfig, pinned)
            cluster = json.loads(pinned)["clusters"][0]["cluster"]
            self.url = cluster["server"]
            self.ca_file = self.directory / "ca.crt"
            self.ca_file.write_bytes(base64.b64decode(cluster.get("certificate-authority-data", "")))
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Remove the copy."""
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Through kubectl, which knows every way to log in that a kubeconfig can name."""
        try:
            answer: dict[str, Any] = json.loads(
                self.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(body))
            )
        except KubectlError as error:
            status = HTTPStatus.CONFLICT if "AlreadyExists" in error.stderr else HTTPStatus.BAD_REQUEST
            raise RequestError(path, status, error.stderr) from error
        return answer

    def check(self) -> None:
        """Nothing to check: we started nothing."""


def _find_kubectl(environ: Mapping[str, str]) -> Path:
    assets = environ.get(ASSETS_VARIABLE)
    if assets and os.access(Path(assets) / "kubectl", os.X_OK):
        return Path(assets).absolute() / "kubectl"
    if not missing_binaries(binary_folder(environ), ("kubectl",)):
        return binary_folder(environ) / "kubectl"
    if found := shutil.which("kubectl", path=environ.get("PATH", "")):
        return Path(found)
    raise BuildError(
        "there is no kubectl.\nPut one on PATH, or build one: python -m tools.controlplane build"
    )
