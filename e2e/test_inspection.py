"""kubectl alone answers "why did it not run at 02:30?", and tools that wait understand the status."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from astrabox_scheduler_crds.crd import field_paths, run_crd, schedule_crd
from astrabox_scheduler_crds.names import deployment_key
from e2e.inspection_scene import Scene, set_scene
from e2e.kubectl_tables import rows
from e2e.release import Release
from e2e.waiting import until
from tools.controlplane import KubectlError
from tools.controlplane.errors import CommandError
from tools.helm import Helm

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]  # the scene takes minutes

UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:00Z")
WIDTH = 160
WIDEST = 170
"""Of schedules, with a name of 40 characters: that of a Deployment whose id is no DNS label."""
"""Characters that a wide terminal has; a plain list has to fit in."""


@pytest.fixture(scope="module")
def told(release: Release, helm: Helm) -> Scene:
    return set_scene(release, helm)


@pytest.fixture
def scene(told: Scene, request: pytest.FixtureRequest) -> Scene:
    """All that kubectl has shown is in the report of a failure."""
    shown = "\n".join(f"{command}\n{text}" for command, text in told.texts.items())
    request.node.add_report_section("call", "kubectl", shown)
    return told


def run_name(scene: Scene, deployment: str) -> str:
    return f"{deployment}-{scene.due['good']:%Y%m%dt%H%M}z"


def test_why_did_it_not_run(scene: Scene) -> None:
    assert scene.answers == {
        "minutely": "Succeeded, TurnAdmitted",
        "broken": "Failed, PermanentError, RunPermanentError: start_session fails for good",
        "flaky": "Retrying, StagedFailureError: start_session fails 9 times",
        "quota": "not ready, QuotaExceeded",
        "window": "skipped, OutsideCatchUpWindow",
        "nobody": "skipped, NoAstraBoxProcess",
        "paused": "Disabled",
        "gone": "Deleted",
        "badcron": "not ready, InvalidCron",
        "badzone": "not ready, InvalidZone",
        "misnamed": "not ready, NameMismatch",
    }


def test_schedules_are_listed_for_the_eye(scene: Scene) -> None:
    text = scene.texts["$ kubectl get dsched"]
    listed = rows(text)
    assert list(listed["minutely"]) == [
        "NAME", "CRON", "ZONE", "ENABLED", "LAST DUE", "NEXT DUE", "READY", "REASON", "SKIPPED", "AGE",
    ]  # fmt: skip
    good = listed["minutely"]
    assert (good["CRON"], good["ZONE"], good["ENABLED"]) == ("* * * * *", "Europe/Berlin", "true")
    assert (good["READY"], good["REASON"]) == ("True", "Scheduled")
    assert UTC_TIME.fullmatch(good["LAST DUE"])
    assert UTC_TIME.fullmatch(good["NEXT DUE"])
    assert (listed["nightly-report"]["LAST DUE"], listed["nightly-report"]["SKIPPED"]) == ("", "")
    assert (listed["paused"]["READY"], listed["paused"]["NEXT DUE"]) == ("True", "")
    assert max(map(len, text.splitlines())) <= WIDEST
    key = deployment_key("Team A/Weekly")
    assert rows(scene.texts["$ kubectl get dsched -o wide"])[key]["DEPLOYMENT"] == "Team A/Weekly"


def test_runs_are_listed_for_the_eye(scene: Scene) -> None:
    text = scene.texts["$ kubectl get runinv"]
    listed = rows(text)
    good, bad = listed[run_name(scene, "minutely")], listed[run_name(scene, "broken")]
    assert list(good) == ["NAME", "TRIGGER", "PHASE", "REASON", "DUE", "SESSION", "ATTEMPTS", "AGE"]
    assert datetime.fromisoformat(good["DUE"]) == scene.due["good"]
    assert good["SESSION"].startswith("sess-")
    assert (good["TRIGGER"], good["ATTEMPTS"]) == ("schedule", "1")
    assert (bad["PHASE"], bad["REASON"], bad["SESSION"]) == ("Failed", "PermanentError", "")
    assert max(map(len, text.splitlines())) <= WIDTH
    wide = rows(scene.texts["$ kubectl get runinv -o wide"])
    waits = wide[run_name(scene, "flaky")]
    assert datetime.fromisoformat(waits["NEXT ATTEMPT"]) > scene.due["good"]
    assert waits["ASSIGNEE"]
    assert datetime.fromisoformat(waits["STARTED"]) >= scene.due["good"]


def test_what_is_described_says_what_to_do(scene: Scene) -> None:
    described = scene.texts["$ kubectl describe dsched badcron"]
    assert 'The hour field has "22-2", a range that ends before it begins' in described
    assert re.search(r"Warning +InvalidCron ", described), "an Event says the same"
    assert "nothing is due until it is enabled" in scene.texts["$ kubectl describe dsched paused"]
    refused = scene.texts["while the quota is used up $ kubectl describe dsched minutely"]
    assert "exceeded quota: no-runs" in refused
    failed = scene.texts[f"$ kubectl describe runinv {run_name(scene, 'broken')}"]
    assert re.search(r"Message: +RunPermanentError: start_session fails for good", failed)


def test_events_sum_gaps_up(scene: Scene) -> None:
    lines = scene.texts["$ kubectl get events --field-selector type=Warning"].splitlines()
    gaps = [line for line in lines if "DueTimesSkipped" in line and "deploymentschedule/minutely" in line]
    window, nobody = "could not be fired within the catch-up window", "no AstraBox process was running"
    assert [line for line in gaps if window in line]
    assert [line for line in gaps if nobody in line and "The next due time is 20" in line]
    assert all("skipped, at 20" in line or "skipped, from 20" in line for line in gaps)
    assert any(
        nobody in line for line in scene.texts["after all $ kubectl describe dsched minutely"].splitlines()
    )
    assert not any("Summarise" in line or "behaviour" in line for line in lines), "no prompt is in an Event"


def test_scripts_can_wait(scene: Scene) -> None:
    kubectl = scene.release.kubectl
    good, bad = run_name(scene, "minutely"), run_name(scene, "broken")
    assert "condition met" in kubectl("wait", "--for=condition=Succeeded", f"runinv/{good}", "--timeout=5s")
    assert "condition met" in kubectl("wait", "--for=condition=Failed", f"runinv/{bad}", "--timeout=5s")
    for name in (good, bad):
        kubectl("wait", "--for=condition=Finished", f"runinv/{name}", "--timeout=5s")
    with pytest.raises(KubectlError, match="timed out"):
        kubectl("wait", "--for=condition=Succeeded", f"runinv/{bad}", "--timeout=2s")
    kubectl("wait", "--for=condition=Ready", "dsched/nightly-report", "--timeout=5s")
    kubectl("wait", "--for=condition=Suspended", "dsched/paused", "--timeout=5s")
    with pytest.raises(KubectlError, match="timed out"):
        kubectl("wait", "--for=condition=Ready", "dsched/badcron", "--timeout=2s")


def test_fields_can_be_selected(scene: Scene) -> None:
    def selected(kind: str, selector: str) -> set[str]:
        return set(rows(scene.shown("get", kind, "--field-selector", selector)))

    flaky = selected("runinv", "spec.deploymentId=flaky")
    assert flaky
    assert all(name.startswith("flaky-") for name in flaky)
    assert run_name(scene, "broken") in selected("runinv", "status.phase=Failed")
    assert selected("runinv", "spec.trigger=schedule,spec.deploymentId=minutely")
    assert selected("dsched", "spec.enabled=false") >= {"paused"}
    assert selected("dsched", "spec.deploymentId=Team A/Weekly") == {deployment_key("Team A/Weekly")}
    assert rows(scene.shown("get", "astrabox"))


@pytest.mark.parametrize("kind", ["dsched", "runinv"])
def test_every_field_is_explained(release: Release, kind: str) -> None:
    definition = schedule_crd() if kind == "dsched" else run_crd()
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    paths = {path.replace("[]", "") for path in field_paths(schema)}
    assert len(paths) > 10
    for path in sorted(paths):
        text = release.kubectl("explain", f"{kind}.{path}")
        assert "<no description>" not in text, text
    assert "names." not in release.kubectl("explain", kind)


def test_the_status_is_that_of_the_spec(scene: Scene) -> None:
    """The rules of kstatus: current means seen, and Ready; what is not Ready says so."""
    told = {each["metadata"]["name"]: kstatus(each) for each in scene.release.objects("dsched")}
    assert (told["nightly-report"], told["paused"]) == ("Current", "Current")
    assert {told[name] for name in ("badcron", "badzone", "misnamed")} == {"InProgress"}
    scene.release.kubectl(
        "patch",
        "dsched",
        "nightly-report",
        "--type=merge",
        "-p",
        json.dumps({"spec": {"cron": "31 2 * * *"}}),
    )
    scene.release.kubectl(
        "wait", "dsched/nightly-report", "--for=jsonpath={.status.observedGeneration}=2", "--timeout=30s"
    )


def test_a_run_is_current_in_every_phase(scene: Scene, helm: Helm, tmp_path: Path) -> None:
    """It is a record of work: what became of that is in its conditions, about the one generation it has."""
    release = scene.release
    running = release.hosts[0].enqueue("long", {"behaviour": {"admit_turn": "hang:600"}}).run_id
    until(
        lambda: release.kubectl("get", "runinv", running, "-o", "jsonpath={.status.phase}") == "Running",
        20,
        "AstraBox is called",
    )
    phases = {
        running: "Running",
        run_name(scene, "minutely"): "Succeeded",
        run_name(scene, "broken"): "Failed",
    }
    runs = [run for run in release.objects("runinv") if run["metadata"]["name"] in phases]
    assert {run["metadata"]["name"]: run["status"]["phase"] for run in runs} == phases
    for run in runs:
        conditions = run["status"].get("conditions", ())
        assert kstatus(run) == "Current"
        assert {each["observedGeneration"] for each in conditions} <= {run["metadata"]["generation"]} == {1}
        held = {each["type"] for each in conditions if each["status"] == "True"}
        phase = run["status"]["phase"]
        assert held == (set() if phase == "Running" else {"Finished", phase})
    if helm.major != "3":  # which does not look at custom resources
        items = [{key: run[key] for key in ("apiVersion", "kind", "spec")} | kept(run) for run in runs]
        write_chart(tmp_path, "with-runs", items)
        flags = ("--take-ownership", "--force-conflicts", "--wait", "--timeout", "20s")
        helm("install", "with-runs", str(tmp_path), "-n", release.namespace, *flags)
        helm("uninstall", "with-runs", "-n", release.namespace)
    assert phases.keys() <= {run["metadata"]["name"] for run in release.objects("runinv")}


def kept(run: dict[str, Any]) -> dict[str, Any]:
    """Metadata by which Helm leaves it when the release goes."""
    return {"metadata": {"name": run["metadata"]["name"], "annotations": {"helm.sh/resource-policy": "keep"}}}


def kstatus(item: dict[str, Any]) -> str:
    """What kstatus computes for a custom resource."""
    status = item.get("status", {})
    held = {each["type"]: each["status"] for each in status.get("conditions", ())}
    if "deletionTimestamp" in item["metadata"]:
        return "Terminating"
    if status.get("observedGeneration", item["metadata"]["generation"]) != item["metadata"]["generation"]:
        return "InProgress"
    if held.get("Stalled") == "True":
        return "Failed"
    waits = held.get("Reconciling") == "True" or held.get("Ready", "True") != "True"
    return "InProgress" if waits else "Current"


def test_helm_waits_for_a_schedule_to_be_ready(release: Release, helm: Helm, tmp_path: Path) -> None:
    """Helm 4 waits by kstatus; Helm 3 does not look at custom resources."""
    if helm.major == "3":
        pytest.skip("Helm 3 does not wait for custom resources")
    write_chart(tmp_path, "with-schedule", [schedule_of_a_chart("30 2 * * *")])
    flags = ("-n", release.namespace, "--wait")
    helm("install", "with-schedule", str(tmp_path), *flags, "--timeout", "60s")
    write_chart(tmp_path, "with-schedule", [schedule_of_a_chart("0 22-2 * * *")])
    with pytest.raises(CommandError, match=r"of-a-chart|not ready|deadline"):
        helm("upgrade", "with-schedule", str(tmp_path), *flags, "--timeout", "8s")
    helm("uninstall", "with-schedule", "-n", release.namespace)


def schedule_of_a_chart(cron: str) -> dict[str, Any]:
    spec = {"deploymentId": "of-a-chart", "cron": cron, "timeZone": "UTC", "payload": "{}"}
    return {
        "apiVersion": "scheduler.astrabox.io/v1",
        "kind": "DeploymentSchedule",
        "metadata": {"name": "of-a-chart", "annotations": {"example.com/change": secrets.token_hex(4)}},
        "spec": spec,
    }


def write_chart(folder: Path, name: str, items: Sequence[dict[str, Any]]) -> None:
    (folder / "templates").mkdir(exist_ok=True)
    (folder / "Chart.yaml").write_text(f"apiVersion: v2\nname: {name}\nversion: 1.0.0\n")
    (folder / "templates" / "objects.yaml").write_text(yaml.safe_dump_all(items))
