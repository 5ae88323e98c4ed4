"""Requests with the token of a service account: what the API server says to each verb on each resource."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import yaml

VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")
_ABSENT = "there-is-no-such-object"
_TIMEOUT_SECONDS = 20.0
_METHODS = {
    "get": "GET",
    "list": "GET",
    "watch": "GET",
    "create": "POST",
    "update": "PUT",
    "patch": "PATCH",
    "delete": "DELETE",
    "deletecollection": "DELETE",
}
_ON_COLLECTION = ("list", "watch", "create", "deletecollection")


@dataclass(frozen=True, order=True)
class Resource:
    """A namespaced resource, or a subresource behind a slash; `version` is the one that is asked."""

    group: str
    version: str
    name: str

    def path(self, namespace: str, verb: str) -> str:
        """Path and query of a request with this verb."""
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        plural, _, subresource = self.name.partition("/")
        path = f"{root}/namespaces/{namespace}/{plural}"
        if subresource:
            return f"{path}/{_ABSENT}/{subresource}"
        if verb not in _ON_COLLECTION:
            return f"{path}/{_ABSENT}"
        return f"{path}?watch=true&timeoutSeconds=1" if verb == "watch" else path

    @property
    def verbs(self) -> Iterator[str]:
        """Those that there are."""
        return (verb for verb in VERBS if "/" not in self.name or verb not in _ON_COLLECTION)


@dataclass(frozen=True)
class Bearer:
    """Whoever holds the token of a kubeconfig."""

    url: str
    token: str
    trust: ssl.SSLContext

    def status(self, resource: Resource, namespace: str, verb: str) -> HTTPStatus:
        """What a request with an empty body and the name of no object is answered with; it changes nothing.

        Rights are looked at before the name and the body.
        """
        method = _METHODS[verb]
        content = "application/merge-patch+json" if method == "PATCH" else "application/json"
        request = urllib.request.Request(  # noqa: S310 - the address of our own cluster
            self.url + resource.path(namespace, verb),
            method=method,
            data=json.dumps({}).encode() if method in ("POST", "PUT", "PATCH") else None,
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": content},
        )
        try:
            with urllib.request.urlopen(  # noqa: S310 - the same
                request, timeout=_TIMEOUT_SECONDS, context=self.trust
            ) as answer:
                return HTTPStatus(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return HTTPStatus(error.code)


def bearer(kubeconfig: Path) -> Bearer:
    """The one of a kubeconfig that names a token and a file of certificates."""
    content = yaml.safe_load(kubeconfig.read_text())
    cluster = content["clusters"][0]["cluster"]
    trust = ssl.create_default_context(cafile=cluster["certificate-authority"])
    return Bearer(cluster["server"], content["users"][0]["user"]["token"], trust)
