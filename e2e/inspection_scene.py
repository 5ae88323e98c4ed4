"""Schedules and runs in every state that a person may find them in, and what kubectl shows of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from astrabox.seams.scheduler import Schedule
from e2e.kubectl_tables import rows
from e2e.release import HOSTS, Release
from e2e.waiting import now, until, whole_minute
from tools.generated.chart import CHART
from tools.helm import Helm

WINDOW_SECONDS: Final = 30
"""The shortest catch-up window, so that a due time is soon beyond it."""
_MINUTE: Final = timedelta(minutes=1)
_EVERY_MINUTE: Final = "* * * * *"
_QUOTA: Final = "no-runs"
_LOOKED_AT_SECONDS: Final = 12.0
"""How long kubectl takes for what it is asked about a run that waits."""
_BY_HAND: Final = {
    "badcron": ("badcron", "0 22-2 * * *", "UTC"),
    "badzone": ("badzone", _EVERY_MINUTE, "Europe/Berln"),
    "misnamed": ("other-name", _EVERY_MINUTE, "UTC"),
}


@dataclass
class Scene:
    """`texts` holds what was printed when it was so, by the command and the state."""

    release: Release
    helm: Helm
    due: dict[str, datetime] = field(default_factory=dict)
    """A due time of `minutely` in each state."""
    answers: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def shown(self, *command: str, state: str = "") -> str:
        """Output of kubectl, kept for the report of a failure."""
        text = self.release.kubectl(*command)
        self.texts[f"{state}$ kubectl {' '.join(command)}"] = text
        return text

    def status(self, name: str) -> Mapping[str, Any]:
        """Status of a schedule."""
        found: dict[str, Any] = json.loads(self.release.kubectl("get", "dsched", name, "-o", "json"))[
            "status"
        ]
        return found


def why_not(scene: Scene, deployment: str, due: datetime, state: str = "") -> str:
    """The answer of docs/install.md to "why did it not run at ...?", from what two commands print."""
    run = f"{deployment}-{due:%Y%m%dt%H%M}z"
    listed = scene.shown("get", "runinv", run, "-o", "wide", "--ignore-not-found", state=state)
    if listed:
        row = rows(listed)[run]
        told = (row["PHASE"], row["REASON"], row["ERROR"])
        return ", ".join(each for each in told if each)
    row = rows(scene.shown("get", "dsched", deployment, "-o", "wide", state=state))[deployment]
    if row["ENABLED"] == "false":
        return row["REASON"]
    if row["LAST SKIPPED"] and datetime.fromisoformat(row["LAST SKIPPED"]) >= due:
        return f"skipped, {row['WHY SKIPPED']}"
    if row["READY"] == "False":
        return f"not ready, {row['REASON']}"
    if row["NEXT DUE"] and datetime.fromisoformat(row["NEXT DUE"]) <= due:
        return "no operator fires"
    return "not known"


def set_scene(release: Release, helm: Helm) -> Scene:
    """Some minutes of a namespace in which much goes wrong."""
    scene = Scene(release, helm)
    helm(
        "upgrade", release.name, str(CHART), "-n", release.namespace, "--reuse-values", "--wait",
        "--set", f"settings.catchUpWindowSeconds={WINDOW_SECONDS}",
    )  # fmt: skip
    _write_schedules(scene)
    _let_runs_end(scene)
    _use_up_the_quota(scene)
    _take_astrabox_away(scene)
    return scene


def _write_schedules(scene: Scene) -> None:
    host = scene.release.hosts[0]

    def apply(name: str, cron: str, payload: dict[str, Any], *, enabled: bool = True) -> None:
        host.apply(Schedule(name, cron, "Europe/Berlin", enabled, payload))

    apply("nightly-report", "30 2 * * *", {"agent": "reporter", "prompt": "Summarise yesterday"})
    apply("minutely", _EVERY_MINUTE, {"prompt": "Look"})
    apply("broken", _EVERY_MINUTE, {"behaviour": {"start_session": "permanent"}})
    apply("flaky", _EVERY_MINUTE, {"behaviour": {"start_session": "fail:9"}})
    apply("paused", _EVERY_MINUTE, {}, enabled=False)
    apply("Team A/Weekly", "0 9 * * 1", {})
    apply("gone", _EVERY_MINUTE, {})
    host.delete("gone")
    _write_by_hand(scene)


def _write_by_hand(scene: Scene) -> None:
    """Schedules that AstraBox would refuse; it removes them when it starts."""
    for name, (deployment_id, cron, zone) in _BY_HAND.items():
        spec = {"deploymentId": deployment_id, "cron": cron, "timeZone": zone, "payload": "{}"}
        item = {"apiVersion": "scheduler.astrabox.io/v1", "kind": "DeploymentSchedule", "spec": spec}
        scene.release.kubectl("apply", "-f", "-", input=json.dumps(item | {"metadata": {"name": name}}))


def _let_runs_end(scene: Scene) -> None:
    release, due = scene.release, whole_minute(now()) + _MINUTE
    names = [f"{each}-{due:%Y%m%dt%H%M}z" for each in ("minutely", "broken", "flaky")]

    def settled() -> bool:
        found = {run["metadata"]["name"]: run["status"] for run in release.objects("runinv")}
        phases = [found.get(name, {}).get("phase", "") for name in names]
        if phases != ["Succeeded", "Failed", "Retrying"]:
            return False
        # Its waits are 2, 6, 18 s and so on: kubectl is to show it in one of them, not in an attempt.
        again = datetime.fromisoformat(found[names[2]]["nextAttemptTime"])
        return again - now() > timedelta(seconds=_LOOKED_AT_SECONDS)

    until(settled, 120, "the runs of a due time are where they go, and stay there for a while")
    scene.due["good"] = due
    for each in ("minutely", "broken", "flaky", "paused", "gone", *_BY_HAND):
        scene.answers[each] = why_not(scene, each, due)
    for kind in ("dsched", "runinv"):
        scene.shown("get", kind)
        scene.shown("get", kind, "-o", "wide")
    for name in ("nightly-report", "badcron", "paused"):
        scene.shown("describe", "dsched", name)
    for name in names:
        scene.shown("describe", "runinv", name)


def _use_up_the_quota(scene: Scene) -> None:
    """Runs cannot be created for longer than the catch-up window."""
    release = scene.release
    hard = "count/runinvocations.scheduler.astrabox.io=0"
    release.kubectl("create", "quota", _QUOTA, f"--hard={hard}")
    until(lambda: _reason(scene, "minutely") == "QuotaExceeded", 150, "a run was refused for the quota")
    due = datetime.fromisoformat(scene.status("minutely")["nextDueTime"])
    scene.due["quota"] = due
    scene.answers["quota"] = why_not(scene, "minutely", due, "while the quota is used up ")
    scene.shown("describe", "dsched", "minutely", state="while the quota is used up ")
    until(lambda: _skipped_to(scene, due), WINDOW_SECONDS + 90, "the due time is beyond the catch-up window")
    scene.answers["window"] = why_not(scene, "minutely", due, "after the quota was used up ")
    release.kubectl("delete", "quota", _QUOTA)
    until(lambda: _reason(scene, "minutely") == "Scheduled", 150, "it fires again")


def _take_astrabox_away(scene: Scene) -> None:
    """Nobody is there at a due time."""
    release = scene.release
    release.kubectl("scale", "deployment", "astrabox", "--replicas=0")
    release.kubectl("wait", "--for=delete", "pod", "-l", "app=astrabox", "--timeout=90s")
    due = whole_minute(now()) + _MINUTE
    scene.due["nobody"] = due
    until(lambda: _skipped_to(scene, due), 130, "the due time is skipped for want of a process")
    scene.answers["nobody"] = why_not(scene, "minutely", due, "while AstraBox is away ")
    release.kubectl("scale", "deployment", "astrabox", f"--replicas={HOSTS}")
    release.rolled_out("astrabox")
    # Each schedule's owner tells its gaps, when it next looks for those that are over.
    until(lambda: "no AstraBox process" in _events(release, "minutely"), 90, "an Event sums the gap up")
    scene.shown("get", "events", "--field-selector", "type=Warning")
    scene.shown("describe", "dsched", "minutely", state="after all ")
    assert not _BY_HAND.keys() & {each["metadata"]["name"] for each in release.objects("dsched")}
    _write_by_hand(scene)
    until(lambda: all(_reason(scene, name) for name in _BY_HAND), 30, "they are refused again")


def _events(release: Release, schedule: str) -> str:
    return release.kubectl("get", "events", "--field-selector", f"involvedObject.name={schedule}")


def _reason(scene: Scene, name: str) -> str:
    ready = [each for each in scene.status(name).get("conditions", ()) if each["type"] == "Ready"]
    return str(ready[0]["reason"]) if ready else ""


def _skipped_to(scene: Scene, due: datetime) -> bool:
    last = scene.status("minutely").get("skipped", {}).get("lastDueTime")
    return last is not None and datetime.fromisoformat(last) >= due
