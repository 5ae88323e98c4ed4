"""An installed chart with two AstraBox processes beside it, in a namespace of its own."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from e2e.hosts import HandlerCall, HostPod, handler_calls, host_manifests, ready_hosts
from e2e.images import Images
from e2e.waiting import until
from tools.controlplane import Cluster, KubectlError
from tools.generated.chart import CHART
from tools.helm import Helm

NAME = "astrabox-scheduler"
HOSTS = 2
_ROLLOUT_SECONDS = 110
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}


@dataclass(frozen=True)
class Release:
    """An installed chart, and the hosts beside it."""

    name: str
    namespace: str
    cluster: Cluster

    @property
    def operator(self) -> str:
        """Name of the operator's Deployment, Role and service account."""
        return f"{_fullname(self.name)}-operator"

    @property
    def provider(self) -> str:
        """Name of AstraBox's Role and RoleBinding."""
        return f"{_fullname(self.name)}-provider"

    @property
    def hosts(self) -> list[HostPod]:
        """Both, once there are two that are Ready; asked anew each time, since pods come and go."""

        def found() -> list[HostPod]:
            hosts = ready_hosts(self.cluster, self.namespace)
            return hosts if len(hosts) == HOSTS else []

        return until(found, _ROLLOUT_SECONDS, f"{HOSTS} hosts are Ready")

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - as in subprocess.run
        """Output of kubectl in this namespace; `KubectlError` if it fails."""
        return self.cluster.kubectl("-n", self.namespace, *arguments, input=input)

    def objects(self, kind: str, *flags: str) -> list[dict[str, Any]]:
        """Objects of one kind."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, *flags, "-o", "json"))["items"]
        return found

    def calls(self) -> list[HandlerCall]:
        """What AstraBox was called for so far."""
        return handler_calls(self.cluster, self.namespace)

    def rolled_out(self, *deployments: str) -> None:
        """Wait until these Deployments are as they should be."""
        for name in deployments:
            self.kubectl("rollout", "status", f"deployment/{name}", f"--timeout={_ROLLOUT_SECONDS}s")


def new_namespace(cluster: Cluster) -> str:
    """A namespace that takes restricted pods only; its name."""
    name = f"e2e-{secrets.token_hex(4)}"
    cluster.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": RESTRICTED}})
    return name


def chart_values(images: Images) -> list[str]:
    """The flags by which the chart takes the operator's image."""
    if "@" in images.operator:
        repository, _, digest = images.operator.partition("@")
        return ["--set", f"image.repository={repository}", "--set", f"image.digest={digest}"]
    repository, _, tag = images.operator.rpartition(":")
    return ["--set", f"image.repository={repository}", "--set-string", f"image.tag={tag}"]


def install(
    cluster: Cluster,
    helm: Helm,
    images: Images,
    namespace: str,
    *flags: str,
    name: str = NAME,
    chart: Path = CHART,
) -> Release:
    """`helm install --wait`, as a user does it."""
    helm("install", name, str(chart), "-n", namespace, "--wait", *chart_values(images), *flags)
    return Release(name, namespace, cluster)


def deploy_repository(cluster: Cluster, namespace: str, images: Images) -> None:
    """Start AstraBox's database, without waiting."""
    _apply(cluster, namespace, host_manifests("repository", images.host))


def deploy_hosts(release: Release, images: Images, change: Mapping[str, Any] | None = None) -> None:
    """Start the two hosts and wait until they are Ready; `change` goes into the container of their pods."""
    release.rolled_out("repository")
    objects = host_manifests("astrabox", images.host)
    for each in objects:
        if each["kind"] == "Deployment":
            each["spec"]["template"]["spec"]["containers"][0] |= change or {}
    _apply(release.cluster, release.namespace, objects)
    release.rolled_out("astrabox")


def remove(cluster: Cluster, namespace: str) -> None:
    """Remove a namespace, whose pods may take their time, and the definitions that an uninstall keeps."""
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")
    cluster.kubectl("delete", "crd", "-l", "app.kubernetes.io/part-of=astrabox", "--timeout=60s")


def diagnosis(cluster: Cluster, namespace: str) -> str:
    """What a person would look at after a failure."""
    questions = (
        ("get", "pods,dsched,runinv,leases", "-o", "wide"),
        ("get", "events", "--sort-by=.lastTimestamp"),
        ("logs", "-l", "app.kubernetes.io/component=operator", "--tail=40", "--prefix"),
        ("logs", "-l", "app=astrabox", "--tail=40", "--prefix"),
    )
    told = []
    for question in questions:
        try:
            answer = cluster.kubectl("-n", namespace, *question)
        except KubectlError as error:
            answer = str(error)
        told.append(f"$ kubectl {' '.join(question)}\n{answer}")
    return "\n".join(told)


def _apply(cluster: Cluster, namespace: str, objects: Sequence[Mapping[str, Any]]) -> None:
    cluster.kubectl("-n", namespace, "apply", "-f", "-", input=yaml.safe_dump_all(objects))


def _fullname(name: str) -> str:
    """As the chart makes it."""
    return name if "astrabox-scheduler" in name else f"{name}-astrabox-scheduler"
