"""Values that cannot be used are refused by their name, before anything is installed."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from astrabox_scheduler_operator import app
from astrabox_scheduler_operator.health import HEALTH_STOP_SECONDS
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.settings import PREFIX, Settings
from tests.chart.helm import Helm, HelmError, as_dependency, named
from tools.generated.chart import CHART
from tools.generated.chart_readme import described

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text())
EXIT_SECONDS = 3
"""For Python to end when the last part has."""
FREE = {"global"}
"""Of the schema's objects with members of any name: what a parent chart gives."""
OF_A_PARENT = FREE | {"enabled"}
"""What has no default here: a parent chart gives it, and the condition for this one."""

REFUSED: Mapping[str, tuple[dict[str, Any], str]] = {
    "replica": ({"replica": 3}, "replica"),
    "settings.catchupWindowSeconds": ({"settings": {"catchupWindowSeconds": 60}}, "catchupWindowSeconds"),
    "a window of texts": ({"settings": {"catchUpWindowSeconds": "600"}}, "catchUpWindowSeconds"),
    "a window beyond an hour": ({"settings": {"catchUpWindowSeconds": 3601}}, "catchUpWindowSeconds"),
    "a log level in small letters": ({"settings": {"logLevel": "info"}}, "logLevel"),
    "port 0": ({"settings": {"healthPort": 0}}, "healthPort"),
    "a text for a switch": ({"crds": {"keep": "false"}}, "crds/keep"),
    "an account without a name": ({"astrabox": {"serviceAccounts": [{"namespace": "a"}]}}, "name"),
    "an account that is a text": ({"astrabox": {"serviceAccounts": ["astrabox"]}}, "serviceAccounts/0"),
    "a digest without its kind": ({"image": {"digest": "0" * 64}}, "image/digest"),
    "a pull policy": ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
    "cpus": ({"resources": {"limits": {"memory": "512 MB"}}}, "resources/limits/memory"),
    "request": ({"resources": {"request": {}}}, "request"),
    "a number for an annotation": ({"podAnnotations": {"a": 1}}, "podAnnotations/a"),
    "a selector's label": ({"podLabels": {"app.kubernetes.io/component": "x"}}, "podLabels/app"),
    "a probe's handler": ({"livenessProbe": {"httpGet": {}}}, "httpGet"),
    "too short a stop": ({"terminationGracePeriodSeconds": 29}, "terminationGracePeriodSeconds"),
    "no disruption at all": ({"podDisruptionBudget": {"maxUnavailable": 0}}, "maxUnavailable"),
    "minAvailable": ({"podDisruptionBudget": {"minAvailable": 1}}, "minAvailable"),
    "an address without its range": (
        {"networkPolicy": {"egress": {"apiServerCidrs": ["10.0.0.1"]}}},
        "Cidrs/0",
    ),
    "an alert that is not ours": (
        {"metrics": {"prometheusRule": {"disabled": ["NoOperator"]}}},
        "disabled/0",
    ),
    "a bucket that is none": ({"metrics": {"prometheusRule": {"lateSeconds": 45}}}, "lateSeconds"),
    "an interval without its unit": ({"metrics": {"podMonitor": {"interval": "30"}}}, "podMonitor/interval"),
    "units the wrong way round": (
        {"metrics": {"podMonitor": {"interval": "1s1h"}}},
        "podMonitor/interval",
    ),
    "a name in capitals": ({"nameOverride": "UPPER"}, "nameOverride"),
    "a name that ends in a dash": ({"fullnameOverride": "a-"}, "fullnameOverride"),
    "a word for a switch": ({"rbac": {"aggregateToDefaultRoles": "yes"}}, "aggregateToDefaultRoles"),
    "a word for a parent's condition": ({"enabled": "yes"}, "enabled"),
    "cpus of the test": (
        {"tests": {"resources": {"limits": {"memory": "1 GB"}}}},
        "tests/resources/limits/mem",
    ),
    "the test's own label": ({"tests": {"podLabels": {"app.kubernetes.io/component": "x"}}}, "podLabels/app"),
    "a toleration's typo": ({"tolerations": [{"efect": "NoSchedule"}]}, "efect"),
    "a toleration's operator": ({"tolerations": [{"operator": "In"}]}, "tolerations/0/operator"),
    "an image with its tag": ({"image": {"repository": "registry.example.com/x:1.0"}}, "image/repository"),
    "a registry alone": ({"image": {"repository": "registry.example.com:5000"}}, "image/repository"),
    "an image in capitals": ({"image": {"repository": "Foo/BAR"}}, "image/repository"),
    "an image with a space": ({"image": {"repository": "foo bar"}}, "image/repository"),
    "a tag with a slash": ({"image": {"tag": "a/b"}}, "image/tag"),
    "a host that no probe reaches": ({"settings": {"healthHost": "127.0.0.1"}}, "settings/healthHost"),
    "a host by its name": ({"settings": {"healthHost": "localhost"}}, "settings/healthHost"),
    "an account of no name": ({"astrabox": {"serviceAccounts": [{"name": ""}]}}, "serviceAccounts/0/name"),
    "a label's value": ({"commonLabels": {"foo": "bar baz"}}, "commonLabels/foo"),
    "a label's key": ({"commonLabels": {"foo/bar/baz": "x"}}, "foo/bar/baz"),
    "a label's length": ({"podLabels": {"foo": "x" * 64}}, "podLabels/foo"),
    "a node's label": ({"nodeSelector": {"zone": "a b"}}, "nodeSelector/zone"),
    "an annotation's key": ({"podAnnotations": {"a b": "x"}}, "'a b'"),
    "the test's own annotation": (
        {"tests": {"podAnnotations": {"helm.sh/hook": "x"}}},
        "podAnnotations/helm",
    ),
    "a variable's name": ({"extraEnv": [{"name": "A=B"}]}, "extraEnv/0/name"),
    "a priority class": ({"priorityClassName": "High Priority"}, "priorityClassName"),
    "a secret twice": ({"imagePullSecrets": [{"name": "a"}, {"name": "a"}]}, "imagePullSecrets"),
    "a key of nodes twice": ({"topologySpread": {"topologyKeys": ["zone", "zone"]}}, "topologyKeys"),
    "a key of nodes that is none": ({"topologySpread": {"topologyKeys": ["a zone"]}}, "topologyKeys/0"),
}


@pytest.mark.chart
@pytest.mark.parametrize("case", REFUSED)
def test_refused_by_name(helm: Helm, case: str) -> None:
    values, told = REFUSED[case]
    with pytest.raises(HelmError) as refusal:
        helm.render(values)
    assert told in str(refusal.value).replace(".", "/")
    assert "values don't meet the specifications of the schema" in str(refusal.value)


@pytest.mark.chart
@pytest.mark.parametrize(
    "repository",
    [
        "operator",
        "localhost/astrabox-scheduler-operator",
        "registry.example.com:5000/team/a.b__c--d_e/operator",
        "[fd00::1]:5000/operator",
        "Registry.example.com/operator",
    ],
)
def test_a_repository_may_name_a_registry_and_its_port(helm: Helm, repository: str) -> None:
    pod = named(helm.render({"image": {"repository": repository, "tag": "1.0"}}), "Pod")
    assert pod["spec"]["containers"][0]["image"] == f"{repository}:1.0"


@pytest.mark.chart
def test_keys_may_have_a_prefix_and_annotations_any_text(helm: Helm) -> None:
    labels, annotations = {"example.com/a_B.c": "x.Y_z", "empty": ""}, {"Example.com/a": "any text: {}\n"}
    template = named(helm.render({"podLabels": labels, "podAnnotations": annotations}), "Deployment")["spec"][
        "template"
    ]
    assert labels.items() <= template["metadata"]["labels"].items()
    assert template["metadata"]["annotations"] == annotations


@pytest.mark.chart
@pytest.mark.parametrize(("setting", "variable"), [("logLevel", "LOG_LEVEL"), ("healthPort", "HEALTH_PORT")])
def test_a_variable_that_a_setting_sets_is_refused_by_both_names(
    helm: Helm, setting: str, variable: str
) -> None:
    with pytest.raises(HelmError, match=f"extraEnv: {PREFIX}{variable} is what settings.{setting} sets"):
        helm.render({"extraEnv": [{"name": "A", "value": "a"}, {"name": PREFIX + variable, "value": "1"}]})


@pytest.mark.chart
def test_every_variable_that_the_chart_sets_is_refused(newest_helm: Helm) -> None:
    pod = named(newest_helm.render(), "Deployment")["spec"]["template"]["spec"]
    variables = [each["name"] for each in pod["containers"][0]["env"]]
    assert len(variables) == len(DEFAULTS["settings"])
    for name in variables:
        with pytest.raises(HelmError, match=f"extraEnv: {name} is what settings"):
            newest_helm.render({"extraEnv": [{"name": name, "value": "1"}]})


@pytest.mark.chart
def test_a_variable_that_stands_twice_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmError, match="extraEnv: A stands twice"):
        helm.render({"extraEnv": [{"name": "A", "value": "a"}, {"name": "A", "value": "b"}]})


REFUSED_TOGETHER: Mapping[str, tuple[dict[str, Any], str]] = {
    "both monitors": (
        {"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}},
        "metrics.serviceMonitor and metrics.podMonitor: with both, everything is scraped and counted twice",
    ),
    "a long scrape of pods": (
        {"podMonitor": {"enabled": True, "interval": "1m", "scrapeTimeout": "1m1ms"}},
        "metrics.podMonitor.scrapeTimeout: 1m1ms is longer than the interval of 1m",
    ),
    "a long scrape of a service": (
        {"serviceMonitor": {"enabled": True, "interval": "5s"}},
        "metrics.serviceMonitor.scrapeTimeout: 10s is longer than the interval of 5s",
    ),
}


@pytest.mark.chart
@pytest.mark.parametrize("case", REFUSED_TOGETHER)
def test_refused_because_of_another_value(helm: Helm, case: str) -> None:
    values, told = REFUSED_TOGETHER[case]
    with pytest.raises(HelmError) as refusal:
        helm.render({"metrics": values})
    assert told in str(refusal.value)


@pytest.mark.chart
@pytest.mark.parametrize(("interval", "timeout"), [("90s", "1m30s"), ("1h", "59m59s999ms"), ("1500ms", "1s")])
def test_a_scrape_that_ends_in_time_is_accepted(helm: Helm, interval: str, timeout: str) -> None:
    monitor = {"enabled": True, "interval": interval, "scrapeTimeout": timeout}
    (endpoint,) = named(helm.render({"metrics": {"podMonitor": monitor}}), "PodMonitor")["spec"][
        "podMetricsEndpoints"
    ]
    assert (endpoint["interval"], endpoint["scrapeTimeout"]) == (interval, timeout)


@pytest.mark.chart
@pytest.mark.parametrize("enabled", [True, False])
def test_a_chart_that_has_this_one_as_a_dependency_can_leave_it_out(
    helm: Helm, tmp_path: Path, *, enabled: bool
) -> None:
    parent = as_dependency(tmp_path)
    values = {"global": {"domain": "example.invalid"}, CHART.name: {"enabled": enabled}}
    kinds = [each["kind"] for each in helm.render(values, release="all", chart=parent)]
    assert ("Deployment" in kinds) == enabled


def test_a_pod_gets_the_time_that_a_stop_takes() -> None:
    """The code's own bounds, the least that the schema accepts, the default, and the words beside it."""
    least = SCHEMA["properties"]["terminationGracePeriodSeconds"]["minimum"]
    assert app.STOP_SECONDS + EXIT_SECONDS <= least <= DEFAULTS["terminationGracePeriodSeconds"]
    (told,) = (
        value.meaning
        for value in described((CHART / "values.yaml").read_text())
        if value.path == ("terminationGracePeriodSeconds",)
    )
    assert [float(number) for number in re.findall(r"\d+", told)] == [
        app.STOP_SECONDS,
        app.FINISH_SECONDS,
        app.CANCEL_SECONDS,
        app.FLUSH_SECONDS,
        app.WATCH_STOP_SECONDS,
        app.RELEASE_SECONDS,
        HEALTH_STOP_SECONDS,
        least,
    ]


def objects(schema: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Each object that the schema describes."""
    if schema.get("type") == "object":
        yield path, schema
        for name, member in schema.get("properties", {}).items():
            yield from objects(member, (*path, name))
    elif schema.get("type") == "array":
        yield from objects(schema.get("items", {}), (*path, "[]"))


def test_no_object_takes_unknown_members() -> None:
    """But for those that Kubernetes itself describes, which are passed through."""
    roots = {(): SCHEMA} | {(name,): each for name, each in SCHEMA["definitions"].items()}
    open_ones = {
        ".".join(path)
        for root, schema in roots.items()
        for path, each in objects(schema, root)
        if "additionalProperties" not in each
    }
    assert open_ones == FREE | {
        "extraEnv.[].valueFrom",
        "affinity.nodeAffinity",
        "affinity.podAffinity",
        "affinity.podAntiAffinity",
        "networkPolicy.ingress.from.[].podSelector",
        "networkPolicy.ingress.from.[].namespaceSelector",
        "networkPolicy.ingress.from.[].ipBlock",
    }


def test_every_value_is_in_the_schema_and_the_other_way_round() -> None:
    def both(schema: dict[str, Any], values: dict[str, Any], path: str) -> None:
        schema = SCHEMA["definitions"][schema["$ref"].split("/")[-1]] if "$ref" in schema else schema
        properties = schema.get("properties")
        if properties is None or not values:
            return
        without = {"initialDelaySeconds"} if path else OF_A_PARENT
        assert properties.keys() - without == values.keys(), path
        for name, value in values.items():
            if isinstance(value, dict):
                both(properties[name], value, f"{path}.{name}")

    both(SCHEMA, copy.deepcopy(DEFAULTS), "")


def test_bounds_are_those_of_the_settings() -> None:
    fields = Settings.model_json_schema()["properties"]
    names = {
        "".join(part.title() if at else part for at, part in enumerate(name.split("_"))): name
        for name in fields
    }
    for value, schema in SCHEMA["properties"]["settings"]["properties"].items():
        field = fields[names[value]]
        for bound in ("type", "minimum", "maximum", "enum", "minLength"):
            # Port 0 is any free one: of no use where a probe has to know it. Nor is a host that it does
            # not reach, so there are two. An enum says its type.
            narrower = value == "healthHost" or (value, bound) == ("healthPort", "minimum")
            if not narrower and not ("enum" in schema and bound == "type"):
                assert schema.get(bound) == field.get(bound), (value, bound)
        assert DEFAULTS["settings"][value] == field["default"]


def test_lateness_is_a_bucket() -> None:
    """A bound that is no bucket would never be exceeded."""
    buckets = set(Metrics().lateness._upper_bounds)
    choices = SCHEMA["properties"]["metrics"]["properties"]["prometheusRule"]["properties"]["lateSeconds"][
        "enum"
    ]
    assert set(choices) <= buckets
