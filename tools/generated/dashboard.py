"""The Grafana dashboard of the chart: a table of panels made into Grafana's JSON."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tools.generated.chart import CHART

_M: Final = "astrabox_scheduler_operator"
_OF: Final = 'namespace="$namespace"'
_COLUMNS: Final = 2
_WIDTH: Final = 24 // _COLUMNS
_HEIGHT: Final = 8


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel; `queries` are PromQL and the legend of each, `unit` is Grafana's name of it."""

    title: str
    told: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"


_STARTED: Final = (
    f"time() - last_over_time({_M}_start_time_seconds{{{_OF}}}[$__rate_interval])"
    " < $__rate_interval_ms / 1000"
)
"""Operators of which the interval may hold all that they have counted."""


def _grown(name: str, by: str = "") -> str:
    """What a counter has grown in an interval. As in the alerts, a process that is new in it counts whole."""
    grouped = f" by ({by})" if by else ""
    counter = f"{_M}_{name}{{{_OF}}}[$__rate_interval]"
    increase, last = f"increase({counter})", f"last_over_time({counter})"
    return f"sum{grouped} ({increase} > {last} or {last} and ignoring(reason, le) ({_STARTED}) or {increase})"


def _quantile(share: float) -> str:
    return f"histogram_quantile({share}, {_grown('firing_lateness_seconds_bucket', 'le')})"


PANELS: Final = (
    Panel(
        "Due times fired",
        "Due times that became a run, over all operators.",
        ((_grown("fired_total"), "fired"),),
    ),
    Panel(
        "Lateness",
        "From the due time to the created run. Seconds that grow mean operators that were away.",
        ((_quantile(0.5), "half"), (_quantile(0.99), "99 %")),
        unit="s",
    ),
    Panel(
        "Due times skipped",
        "NoAstraBoxProcess: nobody was there to run them. OutsideCatchUpWindow: no operator was in time.",
        ((_grown("skipped_total", "reason"), "{{reason}}"),),
    ),
    Panel(
        "Schedules",
        "Refused ones cannot fire until somebody corrects them; failing ones are tried again.",
        ((f"max by (state) ({_M}_schedules{{{_OF}}})", "{{state}}"),),
    ),
    Panel(
        "Creates that failed",
        "By the API server's reason; each is tried again inside the catch-up window.",
        ((_grown("create_errors_total", "reason"), "{{reason}}"),),
    ),
    Panel(
        "Statuses that could not be written",
        "By the API server's reason; schedules fire all the same, and what is listed of them is old.",
        ((_grown("status_errors_total", "reason"), "{{reason}}"),),
    ),
    Panel(
        "Changes that the watch missed",
        "Found by the sweep against a fresh list; anything but zero is a sick watch.",
        ((_grown("watch_stale_total"), "missed"),),
    ),
    Panel(
        "Shares given up",
        "By an operator that got no answer in time; the others fire what was its share.",
        ((_grown("step_downs_total"), "stepped down"),),
    ),
    Panel(
        "Runs deleted and cancelled",
        "Deleted: history beyond the limit. Cancelled: no AstraBox process was there.",
        ((_grown("runs_deleted_total"), "deleted"), (_grown("runs_cancelled_total"), "cancelled")),
    ),
    Panel(
        "Requests",
        "Reads that confirm schedules before they fire, and writes of their status.",
        (
            (_grown("confirm_reads_total"), "confirming reads"),
            (_grown("status_writes_total"), "status writes"),
        ),
    ),
    Panel(
        "Clock against the API server's",
        "What each operator's clock is ahead. The API server's is the one that counts.",
        ((f"{_M}_clock_skew_seconds{{{_OF}}}", "{{pod}}"),),
        unit="s",
    ),
    Panel(
        "Operators and their time zone data",
        "One line for each operator. Different versions may differ about a due time.",
        ((f"count by (version) ({_M}_tzdata_info{{{_OF}}})", "tzdata {{version}}"),),
    ),
)


def rendered() -> dict[Path, str]:
    """The dashboard and where it goes; the template puts the release's namespace into it."""
    panels = [_panel(number, panel) for number, panel in enumerate(PANELS)]
    dashboard = {
        "title": "AstraBox scheduler",
        "uid": "astrabox-scheduler",
        "tags": ["astrabox"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": _VARIABLES},
        "panels": panels,
    }
    return {CHART / "files" / "dashboard.json": json.dumps(dashboard, indent=2) + "\n"}


_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_VARIABLES: Final[list[dict[str, Any]]] = [
    {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
    {
        "name": "namespace",
        "label": "Namespace",
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values({_M}_tzdata_info, namespace)",
        "refresh": 2,
        "sort": 1,
        "current": {},
    },
]


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(number, _COLUMNS)
    targets = [
        {"refId": chr(ord("A") + index), "expr": query, "legendFormat": legend, "datasource": _SOURCE}
        for index, (query, legend) in enumerate(panel.queries)
    ]
    return {
        "id": number + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.told,
        "datasource": _SOURCE,
        "gridPos": {"x": column * _WIDTH, "y": row * _HEIGHT, "w": _WIDTH, "h": _HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": targets,
    }
