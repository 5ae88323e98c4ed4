"""The two host pods of the stand-in AstraBox: what they are told, and what they were called for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import yaml

from astrabox import host_wire as wire
from astrabox.seams.scheduler import Schedule, ScheduledRun
from tools.controlplane import Cluster
from tools.generated.paths import ROOT

MANIFESTS = ROOT / "e2e" / "manifests"
SERVICE_ACCOUNT = "astrabox"
SOCKET = "/run/astrabox/host.sock"
_IMAGE = "astrabox"
"""The name that stands for the image in the manifests."""


@dataclass(frozen=True)
class HostPod:
    """One AstraBox process in its pod; each call is a `kubectl exec`, and returns when it is answered.

    They raise the errors of the contract or `host_wire.HostError`; `KubectlError` if the pod is gone.
    """

    name: str
    namespace: str
    cluster: Cluster

    def apply(self, rule: Schedule) -> None:
        """Write a Deployment record and apply it; both or none."""
        self._call("apply", schedule=wire.schedule_to_wire(rule))

    def delete(self, deployment_id: str) -> None:
        """Remove a Deployment record and its Schedule; both or none."""
        self._call("delete", deployment_id=deployment_id)

    def enqueue(
        self,
        deployment_id: str,
        payload: Mapping[str, Any],
        *,
        trigger: Literal["manual", "replay"] = "manual",
        replayed_from_run_id: str | None = None,
    ) -> ScheduledRun:
        """Run now, or replay."""
        fields = self._call(
            "enqueue",
            deployment_id=deployment_id,
            payload=payload,
            trigger=trigger,
            replayed_from_run_id=replayed_from_run_id,
        )
        return wire.run_from_wire(fields)

    def list_runs(self, deployment_id: str, *, limit: int = 50) -> list[ScheduledRun]:
        """The newest runs."""
        return [
            wire.run_from_wire(fields)
            for fields in self._call("list_runs", deployment_id=deployment_id, limit=limit)
        ]

    def _call(self, op: str, **arguments: Any) -> Any:
        client = ("python", "-m", "astrabox.host_client", f"--socket={SOCKET}")
        command = ("-n", self.namespace, "exec", "-i", self.name, "-c", "astrabox", "--", *client)
        said = self.cluster.kubectl(*command, input=wire.line({"op": op, **arguments}).decode())
        return wire.result_of(said)


@dataclass(frozen=True)
class HandlerCall:
    """One line of the record of handler calls; `received` is in seconds, by one clock for all hosts."""

    received: float
    host: str
    call: Literal["start_session", "admit_turn"]
    phase: Literal["begin", "end", "error"]
    run_id: str
    deployment_id: str
    session_id: str | None
    payload: Mapping[str, Any] | None


def host_manifests(name: str, image: str) -> list[dict[str, Any]]:
    """The objects of one file of `manifests/`, with this image."""
    objects = [each for each in yaml.safe_load_all((MANIFESTS / f"{name}.yaml").read_text()) if each]
    for each in objects:
        if each["kind"] == "Deployment":
            for container in each["spec"]["template"]["spec"]["containers"]:
                assert container["image"] == _IMAGE
                container["image"] = image
    return objects


def ready_hosts(cluster: Cluster, namespace: str) -> list[HostPod]:
    """Those that are Ready and not about to end, oldest first."""
    listed = cluster.kubectl("-n", namespace, "get", "pods", "-l", f"app={SERVICE_ACCOUNT}", "-o", "json")
    pods = [each for each in json.loads(listed)["items"] if is_serving(each)]
    pods.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
    return [HostPod(pod["metadata"]["name"], namespace, cluster) for pod in pods]


def handler_calls(cluster: Cluster, namespace: str) -> list[HandlerCall]:
    """The record of all calls so far, also of hosts that are gone, in the order in which they came."""
    text = cluster.kubectl("-n", namespace, "exec", "deploy/repository", "--", "cat", "/data/calls.jsonl")
    names = HandlerCall.__dataclass_fields__
    return [
        HandlerCall(**{name: line.get(name) for name in names}) for line in map(json.loads, text.splitlines())
    ]


def is_serving(pod: Mapping[str, Any]) -> bool:
    """Whether a pod is Ready and not about to end."""
    conditions = pod["status"].get("conditions", ())
    ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return ready and "deletionTimestamp" not in pod["metadata"]
