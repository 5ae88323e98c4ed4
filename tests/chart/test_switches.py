"""What each switch of the chart brings or takes, and what its notes then say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from tests.chart.helm import ALL_ON, NAMESPACE, OPERATOR, PROVIDER, RELEASE, Helm, identities, is_hook
from tools.generated.chart import CHART

pytestmark = pytest.mark.chart

CRDS = {
    ("CustomResourceDefinition", "deploymentschedules.scheduler.astrabox.io"),
    ("CustomResourceDefinition", "runinvocations.scheduler.astrabox.io"),
}
BY_DEFAULT = CRDS | {
    ("Deployment", OPERATOR),
    ("PodDisruptionBudget", OPERATOR),
    ("ServiceAccount", OPERATOR),
    *((kind, name) for kind in ("Role", "RoleBinding") for name in (OPERATOR, PROVIDER)),
}
TESTS = {(kind, f"{RELEASE}-test") for kind in ("ServiceAccount", "Role", "RoleBinding", "Pod")}

SWITCHES: Mapping[str, tuple[dict[str, Any], set[tuple[str, str]], set[tuple[str, str]]]] = {
    "no CRDs": ({"crds": {"install": False}}, set(), CRDS),
    "no rights for AstraBox": (
        {"astrabox": {"rbac": False}},
        set(),
        {("Role", PROVIDER), ("RoleBinding", PROVIDER)},
    ),
    "nobody to give AstraBox's rights to": (
        {"astrabox": {"serviceAccounts": []}},
        set(),
        {("RoleBinding", PROVIDER)},
    ),
    "rights of the operator made elsewhere": (
        {"rbac": {"create": False}},
        set(),
        {("Role", OPERATOR), ("RoleBinding", OPERATOR)},
    ),
    "an account made elsewhere": (
        {"serviceAccount": {"create": False, "name": "mine"}},
        set(),
        {("ServiceAccount", OPERATOR)},
    ),
    "no budget": ({"podDisruptionBudget": {"enabled": False}}, set(), {("PodDisruptionBudget", OPERATOR)}),
    "no tests": ({"tests": {"enabled": False}}, set(), TESTS),
    "network policy": (
        {"networkPolicy": {"enabled": True}},
        {("NetworkPolicy", OPERATOR), ("NetworkPolicy", f"{RELEASE}-test")},
        set(),
    ),
    "network policy without tests": (
        {"networkPolicy": {"enabled": True}, "tests": {"enabled": False}},
        {("NetworkPolicy", OPERATOR)},
        TESTS,
    ),
    "rights for people": (
        {"rbac": {"aggregateToDefaultRoles": True}},
        {("ClusterRole", f"{NAMESPACE}-{RELEASE}-{role}") for role in ("view", "edit", "admin")},
        set(),
    ),
    "service": ({"metrics": {"service": {"enabled": True}}}, {("Service", OPERATOR)}, set()),
    "service monitor": (
        {"metrics": {"serviceMonitor": {"enabled": True}}},
        {("ServiceMonitor", OPERATOR), ("Service", OPERATOR)},
        set(),
    ),
    "pod monitor": ({"metrics": {"podMonitor": {"enabled": True}}}, {("PodMonitor", OPERATOR)}, set()),
    "alerts": ({"metrics": {"prometheusRule": {"enabled": True}}}, {("PrometheusRule", OPERATOR)}, set()),
    "dashboard": (
        {"metrics": {"dashboard": {"enabled": True}}},
        {("ConfigMap", f"{RELEASE}-dashboard")},
        set(),
    ),
    "flow schema": ({"flowSchema": {"enabled": True}}, {("FlowSchema", f"{NAMESPACE}-{RELEASE}")}, set()),
    "flow schema of its own level": (
        {"flowSchema": {"enabled": True, "createPriorityLevel": True}},
        {
            ("FlowSchema", f"{NAMESPACE}-{RELEASE}"),
            ("PriorityLevelConfiguration", f"{NAMESPACE}-{RELEASE}"),
        },
        set(),
    ),
}


def test_what_there_is_by_default(helm: Helm) -> None:
    rendered = helm.render()
    assert identities(rendered) == BY_DEFAULT | TESTS
    assert identities([each for each in rendered if is_hook(each)]) == TESTS


@pytest.mark.parametrize("switch", SWITCHES)
def test_each_switch_brings_or_takes_its_objects_alone(helm: Helm, switch: str) -> None:
    values, brings, takes = SWITCHES[switch]
    assert brings or takes
    assert identities(helm.render(values)) == (BY_DEFAULT | TESTS | brings) - takes


NOTES = {
    "kept": (
        {},
        [r"serves the namespace astrabox\b", "PROVIDER=kubernetes", "leaves the CRDs", "helm test"],
        ["--logs"],
    ),
    "not kept": ({"crds": {"keep": False}}, ["DELETES all schedules"], ["leaves the CRDs"]),
    "an image of the user's": ({"image": {"repository": "example.invalid/o"}}, [], ["pulled from nowhere"]),
    "accounts": (dict(ALL_ON), [f"RoleBinding {PROVIDER}", "elsewhere/worker"], ["bound to nobody"]),
    "nobody": ({"astrabox": {"serviceAccounts": []}}, ["bound to nobody"], [f"RoleBinding {PROVIDER} gives"]),
    "no rights": ({"astrabox": {"rbac": False}}, ["astrabox.rbac is off"], ["gives the rights"]),
    "a level that somebody else makes": (
        {"flowSchema": {"enabled": True, "priorityLevel": "theirs"}},
        [r"a priority level named theirs\b", f"get flowschema {NAMESPACE}-{RELEASE}$"],
        [],
    ),
    "a level of its own": (
        {"flowSchema": {"enabled": True, "createPriorityLevel": True}},
        [],
        ["priority level"],
    ),
    "nothing runs": ({"replicas": 0}, ["nothing fires"], []),
}


@pytest.mark.parametrize("case", NOTES)
def test_notes_say_what_to_do_next(newest_helm: Helm, case: str) -> None:
    """Not by Helm 3: its install without a cluster takes Kubernetes for an old one."""
    values, there, away = NOTES[case]
    arguments = (
        "install",
        RELEASE,
        str(CHART),
        "--dry-run=client",
        "--namespace",
        NAMESPACE,
        "--values",
        "-",
    )
    notes = newest_helm.run(*arguments, given=yaml.safe_dump(values)).partition("\nNOTES:\n")[2]
    for text in there:
        assert re.search(text, notes, re.MULTILINE), notes
    for text in away:
        assert not re.search(text, notes), notes
