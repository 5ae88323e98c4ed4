"""Alerts and dashboard ask for metrics that the operator has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from astrabox_scheduler_crds.firing import SkipReason
from astrabox_scheduler_operator.metrics import Metrics
from tests.chart.helm import NAMESPACE, Helm, Object, named
from tests.chart.test_values import SCHEMA
from tools.generated.chart import CHART

OURS = re.compile(r"astrabox_scheduler_operator_[a-z_]+")
LABEL = re.compile(r'(\w+)="([^"]*)"')
STATES = {"active", "disabled", "refused", "failing", "deleted"}
RULES = {"metrics": {"prometheusRule": {"enabled": True}}}


def exposed() -> set[str]:
    """Names of all series of an operator that has counted everything once."""
    metrics = Metrics()
    for reason in SkipReason:
        metrics.skipped.labels(reason.value).inc()
    metrics.create_errors.labels("Forbidden").inc()
    for state in STATES:
        metrics.schedules.labels(state).set(1)
    metrics.lateness.observe(1)
    return {sample.name for family in metrics.registry.collect() for sample in family.samples}


def queries_of_the_dashboard() -> Iterator[str]:
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    yield from (each["query"] for each in dashboard["templating"]["list"])


def alerts(helm: Helm, **values: object) -> list[Object]:
    rule = {"enabled": True} | values
    found = named(helm.render({"metrics": {"prometheusRule": rule}}), "PrometheusRule")
    (group,) = found["spec"]["groups"]
    rules: list[Object] = group["rules"]
    return rules


@pytest.mark.chart
def test_alerts_ask_for_what_there_is(helm: Helm) -> None:
    known = exposed()
    for alert in alerts(helm):
        expression = alert["expr"]
        names = set(OURS.findall(expression))
        assert names <= known, alert["alert"]
        assert names or "kube_deployment" in expression
        assert f'namespace="{NAMESPACE}"' in expression
        labels = LABEL.findall(expression)
        assert {value for name, value in labels if name == "reason"} <= {each.value for each in SkipReason}
        assert {value for name, value in labels if name == "state"} <= STATES
        assert alert["labels"]["severity"] in {"warning", "critical"}
        assert alert["annotations"].keys() == {"summary", "runbook"}
        assert expression.count("(") == expression.count(")")
        assert "%!" not in json.dumps(alert), "a format of the template does not fit its value"


@pytest.mark.chart
def test_alerts_can_be_chosen(helm: Helm) -> None:
    choice = SCHEMA["properties"]["metrics"]["properties"]["prometheusRule"]["properties"]["disabled"]
    names = [alert["alert"] for alert in alerts(helm)]
    assert sorted(names) == sorted(choice["items"]["enum"])
    left = [alert["alert"] for alert in alerts(helm, disabled=["AstraBoxSchedulerNobodyThere"])]
    assert set(names) - set(left) == {"AstraBoxSchedulerNobodyThere"}
    late = {alert["alert"]: alert["expr"] for alert in alerts(helm, lateSeconds=120)}
    assert 'le="120.0"' in late["AstraBoxSchedulerDueTimesLate"]
    labelled = alerts(helm, alertLabels={"team": "agents"})
    assert {alert["labels"]["team"] for alert in labelled} == {"agents"}


@pytest.mark.chart
def test_the_dashboard_arrives_as_it_is(helm: Helm) -> None:
    values = {"metrics": {"dashboard": {"enabled": True}}}
    objects = helm.render(values)
    config = named(objects, "ConfigMap", "astrabox-scheduler-dashboard")
    path: Path = CHART / "files" / "dashboard.json"
    assert json.loads(config["data"]["astrabox-scheduler.json"]) == json.loads(path.read_text())
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"


def test_the_dashboard_asks_for_what_there_is_and_shows_all_of_it() -> None:
    queries = list(queries_of_the_dashboard())
    asked = {name for query in queries for name in OURS.findall(query)}
    known = exposed()
    assert asked <= known
    helpers = re.compile(r"_(created|sum|count)$")
    assert {name for name in known if not helpers.search(name)} == asked
