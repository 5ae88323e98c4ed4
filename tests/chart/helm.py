"""Helm as the tests run it: one of two versions, away from the user's own configuration."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tools import helm
from tools.controlplane.errors import CommandError as HelmError
from tools.generated.chart import CHART

__all__ = ["HelmError"]

RELEASE = "astrabox-scheduler"
NAMESPACE = "astrabox"
OPERATOR = f"{RELEASE}-operator"
PROVIDER = f"{RELEASE}-provider"
OLDEST_KUBERNETES = "1.31.0"
Object = dict[str, Any]

ALL_ON: Mapping[str, Any] = {
    "commonLabels": {"team": "agents"},
    "imagePullSecrets": [{"name": "registry"}],
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy.example.invalid:3128"}],
    "astrabox": {"serviceAccounts": [{"name": "astrabox"}, {"name": "worker", "namespace": "elsewhere"}]},
    "rbac": {"aggregateToDefaultRoles": True},
    "serviceAccount": {"annotations": {"example.com/role": "scheduler"}},
    "priorityClassName": "system-cluster-critical",
    "annotations": {"example.com/owner": "agents"},
    "podAnnotations": {"example.com/scrape": "true"},
    "podLabels": {"example.com/mesh": "off"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
    "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
    "networkPolicy": {
        "enabled": True,
        "ingress": {"from": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
        "egress": {
            "apiServerCidrs": ["10.96.0.1/32", "fd00::1/128"],
            "extra": [{"to": [{"ipBlock": {"cidr": "192.0.2.1/32"}}], "ports": [{"port": 3128}]}],
        },
    },
    "metrics": {
        "service": {"annotations": {"example.com/scrape": "true"}},
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "alertLabels": {"team": "agents"}},
        "dashboard": {"enabled": True, "annotations": {"grafana_folder": "AstraBox"}},
    },
    "flowSchema": {"enabled": True, "createPriorityLevel": True},
    "topologySpread": {"topologyKeys": ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]},
    "tests": {
        "requireAstraBox": True,
        "resources": {"requests": {"cpu": "20m", "memory": "96Mi"}, "limits": {"memory": "128Mi"}},
        "podAnnotations": {"example.com/reason": "a test"},
        "podLabels": {"example.com/mesh": "off"},
    },
}
"""Everything that can be switched on beside each other, and each value that is passed through."""
POD_MONITOR: Mapping[str, Any] = {
    "metrics": {"podMonitor": {"enabled": True, "labels": {"release": "prometheus"}}}
}
"""What excludes the ServiceMonitor."""


@dataclass(frozen=True)
class Helm(helm.Helm):
    """With the chart in hand."""

    @property
    def forcing(self) -> tuple[str, ...]:
        """The flags by which it overwrites what others have written."""
        # Helm 3 writes as a client; only what applies on the server can meet a conflict.
        return () if self.major == "3" else ("--force-conflicts",)

    def run(self, *arguments: str, given: str | None = None) -> str:
        """Its output. Raises HelmError."""
        return self(*arguments, input=given)

    def render(
        self,
        values: Mapping[str, Any] | None = None,
        *flags: str,
        release: str = RELEASE,
        namespace: str = NAMESPACE,
        chart: Path = CHART,
    ) -> list[Object]:
        """Every object of the chart, or of another, those of hooks too. Raises HelmError."""
        chosen = ("--values", "-", "--namespace", namespace, "--kube-version", OLDEST_KUBERNETES)
        text = self.run(
            "template", release, str(chart), *chosen, *flags, given=yaml.safe_dump(dict(values or {}))
        )
        return [each for each in yaml.load_all(text, _EachKeyOnce) if each is not None]


def as_dependency(folder: Path) -> Path:
    """A chart in this folder that has ours as its dependency."""
    parent = folder / "parent"
    shutil.copytree(CHART, parent / "charts" / CHART.name)
    own = yaml.safe_load((CHART / "Chart.yaml").read_text())
    dependency = {key: own[key] for key in ("name", "version")} | {"condition": f"{CHART.name}.enabled"}
    about = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
    (parent / "Chart.yaml").write_text(yaml.safe_dump(about))
    return parent


class _EachKeyOnce(yaml.SafeLoader):
    """Refuses a key that stands twice in a mapping, as Flux and strict API clients do."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        made = super().construct_mapping(node, deep)
        if len(made) < len(node.value):
            raise yaml.constructor.ConstructorError(None, None, "a key stands twice", node.start_mark)
        return made


def named(objects: Sequence[Object], kind: str, name: str | None = None) -> Object:
    """The one object of this kind and name."""
    (found,) = (each for each in objects if each["kind"] == kind and name in (None, each["metadata"]["name"]))
    return found


def is_hook(item: Object) -> bool:
    """Whether it exists only while `helm test` runs."""
    return "helm.sh/hook" in item["metadata"].get("annotations", {})


def identities(objects: Sequence[Object]) -> set[tuple[str, str]]:
    """Kind and name of each."""
    return {(each["kind"], each["metadata"]["name"]) for each in objects}
