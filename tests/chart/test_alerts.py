"""Alerts and dashboard, parsed and evaluated by Prometheus' own promtool."""

from __future__ import annotations

from typing import Any

import pytest

from tests.chart.alert_cases import CASES, LOST, NOW, STARTED, Case, bucket
from tests.chart.helm import Helm, Object, named
from tests.chart.promtool import Promtool
from tests.chart.test_monitoring import dashboard_queries, variables

pytestmark = pytest.mark.chart
PREFIX = "AstraBoxScheduler"


@pytest.fixture(scope="module")
def rules(newest_helm: Helm) -> Object:
    objects = newest_helm.render({"metrics": {"prometheusRule": {"enabled": True}}})
    spec: Object = named(objects, "PrometheusRule")["spec"]
    return spec


def rule_of(rules: Object, alert: str) -> Object:
    (group,) = rules["groups"]
    (found,) = (each for each in group["rules"] if each["alert"] == PREFIX + alert)
    return dict(found)


def test_prometheus_reads_the_rules(promtool: Promtool, rules: Object) -> None:
    promtool.check(rules)
    with pytest.raises(AssertionError, match="could not parse expression"):
        promtool.check({"groups": [{"name": "g", "rules": [{"alert": "A", "expr": "sum(a unless)"}]}]})


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_when_it_should_and_not_else(promtool: Promtool, rules: Object, name: str) -> None:
    case = CASES[name]
    rule = rule_of(rules, case.alert)
    fired = [{"exp_labels": rule["labels"] | case.labels, "exp_annotations": rule["annotations"]}]
    expected = [
        {"alertname": rule["alert"], "eval_time": moment, "exp_alerts": alerts}
        for moments, alerts in ((case.fires, fired), (case.silent, []))
        for moment in moments
    ]
    assert expected
    promtool.evaluate(case.series, {"alert_rule_test": expected}, rules)


def test_each_alert_is_seen_to_fire_and_to_be_silent(rules: Object) -> None:
    def seen(moments: str) -> set[str]:
        return {PREFIX + case.alert for case in CASES.values() if getattr(case, moments)}

    alerts = {rule["alert"] for rule in rules["groups"][0]["rules"]}
    assert seen("fires") == seen("silent") == alerts


def test_prometheus_reads_every_query_of_the_dashboard(promtool: Promtool) -> None:
    queries = [variables(query) for query in dashboard_queries()]
    rules = [{"record": f"dashboard:query:{number}", "expr": query} for number, query in enumerate(queries)]
    promtool.check({"groups": [{"name": "dashboard", "rules": rules}]})
    assert not [query for query in queries if "$" in query]


@pytest.mark.parametrize(
    ("started", "lost", "moment", "shown"),
    [
        (f"_x20 {NOW}", "_x20 480x180", "11m", 480),
        (f"_x20 {NOW}", "_x20 480x180", "20m", 0),
        ("-7200x20 _x60 -7200x20", "9x20 _x60 9x20", "41m", 0),
    ],
    ids=["new", "later", "after a gap"],
)
def test_the_dashboard_shows_what_an_operator_counted_before_its_first_scrape(
    promtool: Promtool, started: str, lost: str, moment: str, shown: int
) -> None:
    (query,) = dashboard_queries("Due times skipped")
    samples = [{"labels": '{reason="OutsideCatchUpWindow"}', "value": shown}]
    promtool.evaluate({STARTED: started, LOST: lost}, expression(variables(query), moment, samples))


def test_the_dashboard_shows_how_late_a_new_operator_was(promtool: Promtool) -> None:
    median, _ = dashboard_queries("Lateness")
    bounds = {"60.0": 0, "120.0": 4, "300.0": 4, "+Inf": 4}
    series = {bucket(bound): f"_x20 {count}x100" for bound, count in bounds.items()}
    series[STARTED] = f"_x20 {NOW}"
    promtool.evaluate(series, expression(variables(median), "10m30s", [{"labels": "{}", "value": 90.0}]))


def expression(query: str, moment: str, samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {"promql_expr_test": [{"expr": query, "eval_time": moment, "exp_samples": samples}]}


def test_a_case_that_is_wrong_would_be_noticed(promtool: Promtool, rules: Object) -> None:
    wrong = Case("DueTimesLost", {STARTED: "-7200x9", LOST: "0x9"}, ["4m"])
    rule = rule_of(rules, wrong.alert)
    fired = [{"exp_labels": rule["labels"], "exp_annotations": rule["annotations"]}]
    expected = [{"alertname": rule["alert"], "eval_time": "4m", "exp_alerts": fired}]
    with pytest.raises(AssertionError, match=rf"alertname: {PREFIX}DueTimesLost, time: 4m"):
        promtool.evaluate(wrong.series, {"alert_rule_test": expected}, rules)
