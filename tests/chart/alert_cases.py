"""What operators count in a time, and which alert has to tell it when.

Series are in promtool's notation, a value each 30 s: `3x20` is a 3 and twenty more, `_x20` twenty scrapes
that did not come about. The time begins at 0; operators that run by then have started two hours before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from astrabox_scheduler_crds.firing import SkipReason
from tests.chart.helm import NAMESPACE, OPERATOR

_M = "astrabox_scheduler_operator"
LONG_AGO = "-7200x200"
NOW = "600x180"
"""The start of a process that was away for the first ten minutes: put `_x20` before it."""


def of(name: str, pod: str = "a", **labels: str) -> str:
    """A series of one operator, with the labels that its scraping gives."""
    own = {"namespace": NAMESPACE, "pod": pod, "instance": f"{pod}:8080", "job": OPERATOR} | labels
    told = ",".join(f'{key}="{value}"' for key, value in own.items())
    return f"{_M}_{name}{{{told}}}"


def skipped(reason: SkipReason, pod: str = "a") -> str:
    """The counter of due times that were skipped for this reason."""
    return of("skipped_total", pod, reason=reason.value)


def bucket(bound: str) -> str:
    """Due times that fired within so many seconds."""
    return of("firing_lateness_seconds_bucket", le=bound)


def deployment(name: str) -> str:
    """A series of kube-state-metrics."""
    return f'kube_deployment_{name}{{namespace="{NAMESPACE}",deployment="{OPERATOR}"}}'


STARTED, RESTARTED = of("start_time_seconds"), of("start_time_seconds", "b")
LOST, NOBODY = skipped(SkipReason.MISSED), skipped(SkipReason.NO_PROVIDER)
TAKEN, DISABLED = skipped(SkipReason.NAME_TAKEN), skipped(SkipReason.DISABLED)
CANCELLED, STALE = of("runs_cancelled_total"), of("watch_stale_total")
FORBIDDEN, UNUSUAL = of("create_errors_total", reason="Forbidden"), of("create_errors_total", reason="Odd")
UNWRITTEN = of("status_errors_total", reason="Forbidden")
ALL, IN_TIME = bucket("+Inf"), bucket("30.0")
REFUSED, FAILING = of("schedules", state="refused"), of("schedules", state="failing")
TZDATA = of("tzdata_info", version="2026.1")
AVAILABLE, WANTED = deployment("status_replicas_available"), deployment("spec_replicas")


@dataclass(frozen=True)
class Case:
    """`fires` and `silent`: times at which the alert is there and is not. `labels`: that its rule leaves."""

    alert: str
    series: Mapping[str, str]
    fires: Sequence[str] = ()
    silent: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


_OF_DEPLOYMENT = {"namespace": NAMESPACE, "deployment": OPERATOR}
CASES: Mapping[str, Case] = {
    "no operator is scraped": Case(
        "NoOperator", {TZDATA: "1x10 stale"}, ["10m"], ["4m", "7m"], {"namespace": NAMESPACE}
    ),
    "operators are scraped": Case("NoOperator", {TZDATA: "1x200"}, silent=["4m", "60m"]),
    "none is ready": Case(
        "NoOperatorReady",
        {AVAILABLE: "2x10 0x100", WANTED: "2x200"},
        ["9m"],
        ["5m", "7m"],
        _OF_DEPLOYMENT,
    ),
    "one of two is ready": Case("NoOperatorReady", {AVAILABLE: "1x100", WANTED: "2x100"}, silent=["20m"]),
    "none is wanted": Case("NoOperatorReady", {AVAILABLE: "0x100", WANTED: "0x100"}, silent=["20m"]),
    "operators that were away skip 480 at once": Case(
        "DueTimesLost", {STARTED: f"_x20 {NOW}", LOST: "_x20 480x180"}, ["10m30s", "20m"], ["9m", "26m"]
    ),
    "and go on skipping": Case(
        "DueTimesLost", {STARTED: f"_x20 {NOW}", LOST: "_x20 480x40 481x100"}, ["24m", "40m"], ["50m"]
    ),
    "an operator that skips 480 and dies": Case(
        "DueTimesLost", {STARTED: "_x20 600x2 stale", LOST: "_x20 480x2 stale"}, ["11m", "20m"], ["30m"]
    ),
    "one that runs skips some": Case(
        "DueTimesLost", {STARTED: LONG_AGO, LOST: "480x40 483x100"}, ["21m", "30m"], ["20m", "40m"]
    ),
    "one that has skipped some is restarted in its pod": Case(
        "DueTimesLost", {STARTED: "-7200x20 630x180", LOST: "7x10 9x10 0x180"}, ["6m", "11m", "18m"], ["25m"]
    ),
    "a gap in the scraping of one that once skipped some": Case(
        "DueTimesLost",
        {STARTED: "-7200x20 _x60 -7200x100", LOST: "480x20 _x60 480x100"},
        silent=["5m", "12m", "20m", "30m", "40m30s", "41m", "45m", "60m"],
    ),
    "a scrape that fails": Case(
        "DueTimesLost",
        {STARTED: "-7200x20 stale -7200x100", LOST: "480x20 stale 480x100"},
        silent=["10m", "10m30s", "11m", "20m"],
    ),
    "operators that once skipped some are scraped for the first time": Case(
        "DueTimesLost",
        {STARTED: "_x20 -7200x100", LOST: "_x20 480x100"},
        silent=["10m", "10m30s", "15m", "30m"],
    ),
    "a rollout of operators that once skipped some": Case(
        "DueTimesLost",
        {
            STARTED: "-7200x22 stale",
            LOST: "480x22 stale",
            RESTARTED: f"_x20 {NOW}",
            skipped(SkipReason.MISSED, "b"): "_x20 0x180",
        },
        silent=["10m", "11m", "12m", "30m"],
    ),
    "due times of disabled schedules": Case(
        "DueTimesLost", {STARTED: LONG_AGO, LOST: "0x200", DISABLED: "0+1x200"}, silent=["30m"]
    ),
    "operators that were away fire late": Case(
        "DueTimesLate",
        {STARTED: f"_x20 {NOW}", ALL: "_x20 8x180", IN_TIME: "_x20 3x180"},
        ["10m30s", "19m"],
        ["9m", "21m"],
    ),
    "one of a thousand fires late": Case(
        "DueTimesLate",
        {STARTED: LONG_AGO, ALL: "0x20 1000x100", IN_TIME: "0x20 999x100"},
        ["11m"],
        ["10m", "25m"],
    ),
    "a thousand fire in time, after one that was late": Case(
        "DueTimesLate",
        {STARTED: LONG_AGO, ALL: "1x20 1001x100", IN_TIME: "0x20 1000x100"},
        silent=["10m", "11m"],
    ),
    "nobody is there": Case(
        "NobodyThere", {STARTED: LONG_AGO, NOBODY: "0x20 1x180", CANCELLED: "0x200"}, ["11m"], ["9m", "30m"]
    ),
    "nobody was there when operators came": Case(
        "NobodyThere",
        {STARTED: f"_x20 {NOW}", NOBODY: "_x20 2x180", CANCELLED: "_x20 0x180"},
        ["11m"],
        ["9m", "30m"],
    ),
    "runs are cancelled": Case(
        "NobodyThere", {STARTED: LONG_AGO, NOBODY: "5x200", CANCELLED: "0x20 1x180"}, ["11m"], ["9m", "30m"]
    ),
    "creates fail and fail": Case(
        "CreateErrors", {STARTED: LONG_AGO, FORBIDDEN: "0x20 0+1x100"}, ["25m"], ["9m", "15m"]
    ),
    "creates fail for a word that is not usual": Case(
        "CreateErrors", {STARTED: LONG_AGO, FORBIDDEN: "0x200", UNUSUAL: "_x20 1+1x100"}, ["25m"], ["15m"]
    ),
    "creates failed once": Case(
        "CreateErrors", {STARTED: f"_x20 {NOW}", FORBIDDEN: "_x20 300x180"}, silent=["11m", "21m", "30m"]
    ),
    "statuses cannot be written": Case(
        "StatusErrors", {STARTED: LONG_AGO, UNWRITTEN: "0x20 0+4x60 240x100"}, ["25m", "40m"], ["15m", "55m"]
    ),
    "a status could not be written once": Case(
        "StatusErrors", {STARTED: LONG_AGO, UNWRITTEN: "0x20 1x180"}, silent=["11m", "21m", "30m"]
    ),
    "a name is taken": Case("NameTaken", {STARTED: LONG_AGO, TAKEN: "0x20 1x180"}, ["11m"], ["9m", "30m"]),
    "a watch misses a change": Case(
        "WatchStale", {STARTED: LONG_AGO, STALE: "2x20 3x180"}, ["11m"], ["9m", "30m"]
    ),
    "a schedule is refused": Case("SchedulesRefused", {REFUSED: "0x20 1x30 0x100"}, ["21m"], ["19m", "30m"]),
    "a schedule fails": Case("SchedulesFailing", {FAILING: "0x20 1x30 0x100"}, ["21m"], ["19m", "30m"]),
    "a schedule fails for a moment": Case("SchedulesFailing", {FAILING: "0x20 1x10 0x100"}, silent=["21m"]),
}
