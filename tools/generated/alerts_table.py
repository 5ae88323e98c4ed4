"""The table of alerts in docs/install.md, from the chart's template of them.

The template is read, not rendered: `make lint` needs no Helm. That Helm makes the same of it is a test's
to see (`tests/chart`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tools.generated.chart import CHART
from tools.generated.marks import between_marks
from tools.generated.paths import ROOT

PAGE: Final = ROOT / "docs" / "install.md"
TEMPLATE: Final = CHART / "templates" / "prometheusrule.yaml"
_HEAD: Final = "| alert | severity | it means | more |\n|---|---|---|---|\n"
_ALERT: Final = re.compile(
    r'"alert" "(?P<name>\w+)"\s+"severity" "(?P<severity>\w+)"\s.*?'
    r'"summary" (?:\(printf )?"(?P<summary>[^"]+)"(?: \(int \.(?P<value>\w+)\)\))?\s',
    re.DOTALL,
)
_CHART: Final = "[the chart](#the-chart)"
_WHY: Final = "[why did it not run?](#why-did-it-not-run-at-0230)"
_SECTIONS: Final[Mapping[str, str]] = {
    "NoOperator": _CHART,
    "NoOperatorReady": _CHART,
    "DueTimesLost": _WHY,
    "DueTimesLate": "[limits](../README.md#limits)",
    "NobodyThere": "[AstraBox](#astrabox)",
    "CreateErrors": _WHY,
    "StatusErrors": _WHY,
    "NameTaken": _WHY,
    "WatchStale": "[requests](architecture.md#requests-to-the-api-server)",
    "SchedulesRefused": _WHY,
    "SchedulesFailing": _WHY,
}


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert as the template has it, with the chart's defaults put in."""

    name: str
    severity: str
    summary: str


def rendered() -> dict[Path, str]:
    """The page with the table in it. Raises ValueError when its place or the section of an alert is gone."""
    rows = "".join(map(_row, alerts()))
    return {PAGE: between_marks(PAGE, _HEAD + rows, source=TEMPLATE.name)}


def alerts() -> list[Alert]:
    """Every alert of the template. Raises ValueError for one that is written in another way than the rest."""
    text = TEMPLATE.read_text("utf-8")
    defaults = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))["metrics"]["prometheusRule"]
    found = [_alert(match, defaults) for match in _ALERT.finditer(text)]
    if len(found) != text.count('"alert" "'):
        raise ValueError(f"{TEMPLATE.name}: write each alert as alert, severity, ..., summary, ...")
    return found


def _alert(match: re.Match[str], defaults: Mapping[str, object]) -> Alert:
    summary = match["summary"]
    if match["value"]:
        summary = summary.replace("%d", str(defaults[match["value"]]))
    return Alert(match["name"], match["severity"], summary)


def _row(alert: Alert) -> str:
    short = alert.name.removeprefix("AstraBoxScheduler")
    if short not in _SECTIONS:
        raise ValueError(f"say in {Path(__file__).name} which section helps when {alert.name} fires")
    return f"| `{alert.name}` | {alert.severity} | {alert.summary} | {_SECTIONS[short]} |\n"
