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


def _rate(name: str, by: str = "") -> str:
    grouped = f" by ({by})" if by else ""
    return f"sum{grouped} (increase({_M}_{name}{{{_OF}}}[$__rate_interval]))"


def _quantile(share: float) -> str:
    buckets = f"increase({_M}_firing_lateness_seconds_bucket{{{_OF}}}[$__rate_interval])"
    return f"histogram_quantile({share}, sum by (le) ({buckets}))"


PANELS: Final = (
    Panel(
        "Due times fired",
        "Due times that became a run, over all operators.",
        ((_rate("fired_total"), "fired"),),
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
        ((_rate("skipped_total", "reason"), "{{reason}}"),),
    ),
    Panel(
        "Schedules",
        "Refused ones cannot fire until somebody corrects them; failing ones are tried again.",
        ((f"max by (state) ({_M}_schedules{{{_OF}}})", "{{state}}"),),
    ),
    Panel(
        "Creates that failed",
        "By the API server's reason; each is tried again inside the catch-up window.",
        ((_rate("create_errors_total", "reason"), "{{reason}}"),),
    ),
    Panel(
        "Changes that the watch missed",
        "Found by the sweep against a fresh list; anything but zero is a sick watch.",
        ((_rate("watch_stale_total"), "missed"),),
    ),
    Panel(
        "Shares given up",
        "By an operator that got no answer in time; the others fire what was its share.",
        ((_rate("step_downs_total"), "stepped down"),),
    ),
    Panel(
        "Runs deleted and cancelled",
        "Deleted: history beyond the limit. Cancelled: no AstraBox process was there.",
        ((_rate("runs_deleted_total"), "deleted"), (_rate("runs_cancelled_total"), "cancelled")),
    ),
    Panel(
        "Requests",
        "Reads that confirm schedules before they fire, and writes of their status.",
        ((_rate("confirm_reads_total"), "confirming reads"), (_rate("status_writes_total"), "status writes")),
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
    """The dashboard and where it goes."""
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
