"""A service account for each process, with the files that a pod would find of it."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Collection
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from tests.faults.history.facts import Role
from tests.faults.stage.admin import Admin
from tools.generated.paths import ROOT

_RBAC = "/apis/rbac.authorization.k8s.io/v1"
_ROLES = {"host": "astrabox-scheduler-provider", "operator": "astrabox-scheduler-operator"}
_REVOKED_SECONDS = 20.0  # the API server remembers for 10 s that a token was good


class Identities:
    """The service accounts of one namespace. Each token lives as long as a Secret that it is bound to."""

    def __init__(self, admin: Admin, namespace: str, folder: Path, ca_file: Path) -> None:
        self._admin = admin
        self._namespace = namespace
        self._folder = folder
        self._authority = ca_file.read_text()
        self._secrets: dict[str, str] = {}

    async def install_roles(self) -> None:
        """The Roles of `deploy/`."""
        for item in yaml.safe_load_all((ROOT / "deploy" / "rbac.yaml").read_text()):
            if item["kind"] == "Role":
                await self._admin.create(f"{_RBAC}/namespaces/{self._namespace}/roles", item)

    async def folder(self, name: str, role: Role) -> Path:
        """The folder that a pod would have mounted; the account is made if it is new."""
        folder = self._folder / f"{name}.account"
        if not folder.exists():
            folder.mkdir(parents=True)
            await self._admin.create(self._core("serviceaccounts"), {"metadata": {"name": name}})
            await self._bind(name, _ROLES[role])
            (folder / "ca.crt").write_text(self._authority)
            (folder / "namespace").write_text(self._namespace)
            await self.issue(name)
        return folder

    def token(self, name: str) -> str:
        """The token in use."""
        return (self._folder / f"{name}.account" / "token").read_text().strip()

    def users(self, names: Collection[str]) -> list[str]:
        """User names of these processes."""
        return [f"system:serviceaccount:{self._namespace}:{name}" for name in names]

    async def rotate(self, name: str) -> None:
        """Write a new token, then revoke the old one, and wait until the API server refuses it."""
        old, secret = self.token(name), self._secrets[name]
        await self.issue(name)
        await self._revoke(name, old, secret)

    async def revoke(self, name: str) -> None:
        """Revoke the token in use, and wait until the API server refuses it."""
        await self._revoke(name, self.token(name), self._secrets[name])

    async def issue(self, name: str) -> None:
        """Write a new token."""
        secret = f"{name}-{secrets.token_hex(4)}"
        made = await self._admin.create(self._core("secrets"), {"metadata": {"name": secret}})
        bound = {"kind": "Secret", "apiVersion": "v1", "name": secret, "uid": made["metadata"]["uid"]}
        request: dict[str, Any] = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": 86_400, "boundObjectRef": bound},
        }
        answer = await self._admin.create(f"{self._core('serviceaccounts')}/{name}/token", request)
        token = self._folder / f"{name}.account" / "token"
        draft = token.with_name("token.draft")
        draft.write_text(answer["status"]["token"] + "\n")
        draft.replace(token)
        self._secrets[name] = secret

    async def _revoke(self, name: str, token: str, secret: str) -> None:
        await self._admin.delete(f"{self._core('secrets')}/{secret}")
        deadline = time.monotonic() + _REVOKED_SECONDS
        while await self._admin.status("GET", "/version", token=token) != HTTPStatus.UNAUTHORIZED:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the old token of {name} is still good after {_REVOKED_SECONDS:g} s")
            await asyncio.sleep(0.2)

    async def _bind(self, name: str, role: str) -> None:
        body = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": self._namespace}],
        }
        await self._admin.create(f"{_RBAC}/namespaces/{self._namespace}/rolebindings", body)

    def _core(self, plural: str) -> str:
        return f"/api/v1/namespaces/{self._namespace}/{plural}"
