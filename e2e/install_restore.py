"""What the page promises about a backup, seen at runs in every state in which a backup can meet them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

from e2e.install_doc import page_blocks
from e2e.install_stage import CRDS, DEPLOYMENT, NAME, InstallStage
from e2e.waiting import now, until, wait_for, whole_minute

_HUNG: Final = "cut-off"
_SKIPPED: Final = {"NoAstraBoxProcess", "OutsideCatchUpWindow"}
_ASK_SECONDS: Final = 60.0
_LEASES: Final = ("leases", "-l", "scheduler.astrabox.io/role")


def begin_runs(stage: InstallStage) -> None:
    """In both hosts the one slot is taken by a run that does not end there; the next one is waiting."""
    for host in stage.release.hosts:
        host.enqueue(_HUNG, {"behaviour": {"admit_turn": "hang:600", "host": host.name}})
    stage.facts["hung"] = until(
        lambda: _sessions(stage, 2), 30, "both runs have their Session and wait for their turn"
    )
    stage.facts["waiting"] = until(
        lambda: _names(stage, lambda run: _phase(run) == "Queued"), 90, "a due time has a run that waits"
    )


def remember_backup(stage: InstallStage, _: str) -> None:
    """What is in it; the files say so, not the cluster, which goes on."""
    runs = _items(stage, "runs.json")
    stage.facts["backed up"] = {run["metadata"]["name"]: run for run in runs}
    stage.facts["ended"] = {
        name for name, run in stage.facts["backed up"].items() if _phase(run) == "Succeeded"
    }
    stage.facts["taken at"] = now()
    assert stage.facts["ended"]
    assert set(stage.facts["waiting"]) <= set(stage.facts["backed up"])
    for name in ("runs.json", "schedules.json", "leases.json"):
        text = (stage.files / "backup" / name).read_text()
        assert "resourceVersion" not in text.replace('"resourceVersion": ""', "")


def lose_everything(stage: InstallStage) -> None:
    """A new cluster has nothing of ours, and an AstraBox with no replicas: so it is here after the stop.

    Nothing is called any more: what the calls were until then is compared.
    """
    stage.facts["calls"] = Counter(call.run_id for call in stage.release.calls())
    stage.helm("uninstall", NAME, "-n", stage.namespace, "--wait")
    stage.kubectl("delete", *_LEASES)
    stage.node.kubectl("delete", "crd", *CRDS, "--timeout=60s")
    # A due time comes while all is away: it is none that was there at the backup, and nobody is there for it.
    wait_for(whole_minute(now()) + timedelta(minutes=1))


def check_restored(stage: InstallStage, _: str) -> None:
    """Row by row what the page's table says."""
    facts = stage.facts
    gone_on = until(
        lambda: _succeeded(stage, {*facts["waiting"], *facts["hung"]}),
        90,
        "what had not ended goes on, and ends",
    )
    for name, session in facts["hung"].items():
        assert gone_on[name]["status"]["sessionId"] == session, "the Session is the one that was saved"
    fired = until(lambda: _fired_since(stage), 120, "due times fire again")
    assert fired is not None
    _check_ended(stage)
    _check_between(stage, fired)
    (ask,) = (block for block in page_blocks() if block.name == "ask-skipped")
    until(
        lambda: tells_of_gap(stage.shell(ask, _ASK_SECONDS)),
        60,
        "an Event and a line of a log tell what was skipped",
    )


def tells_of_gap(said: str) -> bool:
    """Whether the page's commands have found the Event, and the line in which an operator says the same.

    kubectl puts the pod's name before each line of a log: `[pod/NAME/operator] {...}`.
    """
    event = any(f"deploymentschedule/{DEPLOYMENT}" in line for line in said.splitlines())
    logged = (line.partition("] ")[2] for line in said.splitlines() if line.startswith("[pod/"))
    told = [json.loads(line) for line in logged if line.startswith("{")]
    return event and any(
        line.get("schedule") == DEPLOYMENT and line.get("reason") in _SKIPPED for line in told
    )


def _check_ended(stage: InstallStage) -> None:
    """Nothing that had ended was called again, and its record is what it was."""
    calls = Counter(call.run_id for call in stage.release.calls())
    runs = _runs(stage)
    for name in stage.facts["ended"]:
        assert calls[name] == stage.facts["calls"][name], f"{name} had ended and was called again"
        assert runs[name]["status"] == stage.facts["backed up"][name]["status"]


def _check_between(stage: InstallStage, fired: datetime) -> None:
    """Of the due times from the backup to the restore none has a run, and the status says why."""
    known = {_due(run) for run in stage.facts["backed up"].values()}
    began = min(_acquired(lease) for lease in stage.release.objects(*_LEASES) if _begun_since(stage, lease))
    late = [due for run in _runs(stage).values() if (due := _due(run)) and due not in known and due < began]
    assert late == [], "a due time of the time in between has fired"
    (schedule,) = stage.release.objects("dsched")
    skipped = schedule["status"]["skipped"]
    assert skipped["reason"] in _SKIPPED
    last = datetime.fromisoformat(skipped["lastDueTime"])
    assert stage.facts["taken at"] - timedelta(minutes=1) < last < fired
    assert skipped["count"] <= (fired - stage.facts["taken at"]) / timedelta(minutes=1) + 1


def _fired_since(stage: InstallStage) -> datetime | None:
    """The first due time that became a run after the restore."""
    known = stage.facts["backed up"].keys()
    return min(
        (due for name, run in _runs(stage).items() if name not in known and (due := _due(run))), default=None
    )


def _sessions(stage: InstallStage, many: int) -> dict[str, str]:
    found = {
        name: run["status"]["sessionId"]
        for name, run in _runs(stage).items()
        if run["spec"]["deploymentId"] == _HUNG and "sessionId" in run["status"]
    }
    return found if len(found) == many else {}


def _succeeded(stage: InstallStage, names: set[str]) -> dict[str, Any]:
    runs = _runs(stage)
    return runs if all(_phase(runs[name]) == "Succeeded" for name in names) else {}


def _names(stage: InstallStage, chosen: Callable[[dict[str, Any]], bool]) -> list[str]:
    return [name for name, run in _runs(stage).items() if chosen(run)]


def _runs(stage: InstallStage) -> dict[str, Any]:
    return {run["metadata"]["name"]: run for run in stage.release.objects("runinv")}


def _items(stage: InstallStage, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((stage.files / "backup" / name).read_text())["items"]
    return found


def _phase(run: dict[str, Any]) -> str:
    phase: str = run["status"]["phase"]
    return phase


def _due(run: dict[str, Any]) -> datetime | None:
    text = run["spec"].get("dueTime")
    return datetime.fromisoformat(text) if text else None


def _acquired(lease: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(lease["spec"]["acquireTime"])


def _begun_since(stage: InstallStage, lease: dict[str, Any]) -> bool:
    role = lease["metadata"]["labels"]["scheduler.astrabox.io/role"]
    return bool(role == "provider" and _acquired(lease) > stage.facts["taken at"])
