"""What the API server lets us do."""

import json
from collections.abc import Iterable
from typing import Final

from astrabox_scheduler_client.fan_out import fan_out
from astrabox_scheduler_client.resource import read_answer
from astrabox_scheduler_client.transport import Transport
from astrabox_scheduler_crds.metadata import KubernetesModel
from astrabox_scheduler_crds.permissions import Permission

_PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_WHO: Final = "/apis/authentication.k8s.io/v1/selfsubjectreviews"


class _ReviewStatus(KubernetesModel):
    allowed: bool


class _Review(KubernetesModel):
    status: _ReviewStatus


class _UserInfo(KubernetesModel):
    username: str


class _SelfStatus(KubernetesModel):
    user_info: _UserInfo


class _Self(KubernetesModel):
    status: _SelfStatus


class Access:
    """Questions about ourselves and our rights in one namespace; no right is needed to ask."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self._transport = transport
        self._namespace = namespace

    async def account(self) -> str:
        """Who we are to the API server: `system:serviceaccount:astrabox:default`. Raises ApiError."""
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await self._transport.request("POST", _WHO, body=json.dumps(review).encode())
        return read_answer(_Self, answer, _WHO).status.user_info.username

    async def denied(self, permissions: Iterable[Permission]) -> list[Permission]:
        """Those of `permissions` that we do not have, in their order. Raises ApiError."""
        asked = list(permissions)
        allowed = await fan_out(self.allowed, asked)
        return [each for each, granted in zip(asked, allowed, strict=True) if not granted]

    async def allowed(self, permission: Permission) -> bool:
        """Whether we have this right. Raises ApiError."""
        resource, _, subresource = permission.resource.partition("/")
        attributes = {
            "namespace": self._namespace,
            "group": permission.group,
            "resource": resource,
            "subresource": subresource,
            "verb": permission.verb,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        }
        answer = await self._transport.request("POST", _PATH, body=json.dumps(review).encode())
        return read_answer(_Review, answer, _PATH).status.allowed
