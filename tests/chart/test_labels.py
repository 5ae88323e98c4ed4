"""Labels that the chart renders, and the selectors that choose by them."""

from __future__ import annotations

import pytest

from tests.chart.helm import ALL_ON, NAMESPACE, OPERATOR, POD_MONITOR, RELEASE, Helm, Object, named

pytestmark = pytest.mark.chart


def test_selectors_choose_the_operators_pods_alone(helm: Helm, everything: list[Object]) -> None:
    deployment = named(everything, "Deployment")["spec"]
    marks = deployment["template"]["metadata"]["labels"]
    spread = deployment["template"]["spec"]["topologySpreadConstraints"]
    selectors = [
        deployment["selector"]["matchLabels"],
        named(everything, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        named(everything, "NetworkPolicy", OPERATOR)["spec"]["podSelector"]["matchLabels"],
        named(helm.render(POD_MONITOR), "PodMonitor")["spec"]["selector"]["matchLabels"],
        named(everything, "Service")["spec"]["selector"],
        *(each["labelSelector"]["matchLabels"] for each in spread),
    ]
    assert len(selectors) == 7
    test_pod = named(everything, "Pod")["metadata"]["labels"]
    for selector in selectors:
        assert selector.items() <= marks.items()
        assert not selector.items() <= test_pod.items()
    service = named(everything, "Service")["metadata"]["labels"]
    assert named(everything, "ServiceMonitor")["spec"]["selector"]["matchLabels"].items() <= service.items()


def test_operators_that_are_not_ready_are_scraped_too(helm: Helm, everything: list[Object]) -> None:
    spec = named(everything, "Service")["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    assert spec["ports"] == [{"name": "health", "port": 8080, "targetPort": "health", "protocol": "TCP"}]
    assert named(everything, "ServiceMonitor")["spec"]["endpoints"][0]["port"] == "health"
    pod_monitor = named(helm.render(POD_MONITOR), "PodMonitor")
    assert pod_monitor["spec"]["podMetricsEndpoints"][0]["port"] == "health"


def test_a_selector_never_changes_with_the_version(rendered: list[Object]) -> None:
    """It is immutable: with a version in it an upgrade would fail."""
    assert named(rendered, "Deployment")["spec"]["selector"]["matchLabels"] == {
        "app.kubernetes.io/name": "astrabox-scheduler",
        "app.kubernetes.io/instance": RELEASE,
        "app.kubernetes.io/component": "operator",
    }


def test_every_object_has_the_recommended_labels_and_the_users(everything: list[Object]) -> None:
    for item in everything:
        marks = item["metadata"]["labels"]
        recommended = {"name", "instance", "version", "part-of", "managed-by", "component"}
        assert {f"app.kubernetes.io/{each}" for each in recommended} <= marks.keys()
        assert marks["team"] == "agents"
        if item["kind"] not in {
            "ClusterRole",
            "CustomResourceDefinition",
            "FlowSchema",
            "PriorityLevelConfiguration",
        }:
            assert item["metadata"]["namespace"] == NAMESPACE


def test_labels_given_twice_are_rendered_once_and_the_nearer_value_wins(helm: Helm) -> None:
    near, alert = {"team": "", "example.com/own": "yes"}, {"severity": "page"}
    values = {
        **ALL_ON,
        "podLabels": near,
        "tests": {"podLabels": near},
        "metrics": {
            **ALL_ON["metrics"],
            "serviceMonitor": {"enabled": True, "labels": near},
            "prometheusRule": {"enabled": True, "labels": near, "alertLabels": alert},
            "dashboard": {"enabled": True, "labels": near},
        },
    }
    rendered = helm.render(values)
    rule = named(rendered, "PrometheusRule")
    places = [named(rendered, "Deployment")["spec"]["template"], named(rendered, "Pod"), rule]
    places += [named(rendered, "ServiceMonitor"), named(rendered, "ConfigMap")]
    assert [each["metadata"]["labels"].items() >= near.items() for each in places] == [True] * 5
    assert {each["labels"]["severity"] for group in rule["spec"]["groups"] for each in group["rules"]} == {
        "page"
    }
    assert named(rendered, "Deployment")["metadata"]["labels"]["team"] == ALL_ON["commonLabels"]["team"]
