"""Alerts and dashboard ask for metrics that the operator has."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator

import pytest

from astrabox_scheduler_crds.firing import SkipReason
from astrabox_scheduler_operator.metrics import API_ERRORS, Metrics
from tests.chart.helm import NAMESPACE, RELEASE, Helm, Object, named
from tests.chart.test_values import SCHEMA
from tools.generated import alerts_table
from tools.generated.chart import CHART

OURS = re.compile(r"astrabox_scheduler_operator_[a-z_]+")
LABEL = re.compile(r'(\w+)="([^"]*)"')
STATES = {"active", "disabled", "refused", "failing", "deleted"}
RULES = {"metrics": {"prometheusRule": {"enabled": True}}}


def exposed() -> set[str]:
    """Names of all series of an operator; only the states of schedules are not there from the start."""
    metrics = Metrics()
    for state in STATES:
        metrics.schedules.labels(state).set(1)
    return {sample.name for family in metrics.registry.collect() for sample in family.samples}


def dashboard_queries(title: str | None = None) -> Iterator[str]:
    """The queries of one panel, or of all."""
    dashboard = json.loads((CHART / "files" / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        if title in (None, panel["title"]):
            yield from (target["expr"] for target in panel["targets"])


def variables(query: str) -> str:
    """The query as Grafana sends it for a scrape every 30 s."""
    chosen = {"$namespace": NAMESPACE, "$__rate_interval_ms": "120000", "$__rate_interval": "2m"}
    for name, value in chosen.items():
        query = query.replace(name, value)
    return query


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
def test_the_table_of_alerts_says_what_helm_makes_of_the_template(helm: Helm) -> None:
    made = [
        alerts_table.Alert(each["alert"], each["labels"]["severity"], each["annotations"]["summary"])
        for each in alerts(helm)
    ]
    assert alerts_table.alerts() == made


@pytest.mark.chart
def test_what_runbooks_ask_of_kubectl_has_its_namespace_and_reads_every_operator(helm: Helm) -> None:
    """`logs deployment/...` reads one pod of several."""
    commands = [
        command
        for alert in alerts(helm)
        for command in re.findall(r"`(kubectl [^`]+)`", alert["annotations"]["runbook"])
    ]
    logs = [command for command in commands if " logs " in command]
    assert all(command.startswith(f"kubectl -n {NAMESPACE} ") for command in commands)
    assert logs
    assert all(" -l " in each and "--tail=-1" in each and "--prefix" in each for each in logs)


def shown(helm: Helm, namespace: str, release: str = RELEASE) -> tuple[str, Object]:
    """The file's name and the dashboard that a release brings."""
    objects = helm.render({"metrics": {"dashboard": {"enabled": True}}}, namespace=namespace, release=release)
    config = named(objects, "ConfigMap")
    assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
    ((name, text),) = config["data"].items()
    dashboard: Object = json.loads(text)
    return name, dashboard


@pytest.mark.chart
def test_the_dashboard_arrives_with_the_namespace_of_its_release(helm: Helm) -> None:
    name, dashboard = shown(helm, NAMESPACE)
    plain = json.loads((CHART / "files" / "dashboard.json").read_text())
    assert name == f"{NAMESPACE}-{RELEASE}.json"
    assert dashboard.pop("title") == f"{plain.pop('title')} in {NAMESPACE}"
    assert dashboard.pop("uid") != plain.pop("uid")
    (variable,) = (each for each in dashboard["templating"]["list"] if each["name"] == "namespace")
    assert variable["current"] == {"text": NAMESPACE, "value": NAMESPACE}
    variable["current"] = {}
    assert dashboard == plain


@pytest.mark.chart
def test_dashboards_of_two_releases_take_nothing_from_each_other(helm: Helm) -> None:
    all_of_them = [shown(helm, space, name) for space, name in (("one", "a"), ("two", "a"), ("one", "b"))]
    assert len({name for name, _ in all_of_them}) == len({each["uid"] for _, each in all_of_them}) == 3
    assert all(len(each["uid"]) <= 40 for _, each in all_of_them), "more than Grafana takes"


def test_what_alerts_ask_for_is_there_before_it_is_counted() -> None:
    """What is born with its first count has not grown for Prometheus."""
    text = Metrics().text().decode()
    for reason in SkipReason:
        assert f'_skipped_total{{reason="{reason.value}"}} 0.0' in text
    for word in API_ERRORS:
        assert f'_create_errors_total{{reason="{word}"}} 0.0' in text
        assert f'_status_errors_total{{reason="{word}"}} 0.0' in text


def test_the_start_is_told_by_the_clock() -> None:
    before = time.time()
    (sample,) = (
        sample.value
        for family in Metrics().registry.collect()
        for sample in family.samples
        if sample.name == "astrabox_scheduler_operator_start_time_seconds"
    )
    assert before <= sample <= time.time()


def test_the_dashboard_asks_for_what_there_is_and_shows_all_of_it() -> None:
    queries = list(dashboard_queries())
    asked = {name for query in queries for name in OURS.findall(query)}
    known = exposed()
    assert asked <= known
    helpers = re.compile(r"_(created|sum|count)$")
    assert {name for name in known if not helpers.search(name)} == asked
