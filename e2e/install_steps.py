"""What a reader of docs/install.md does between its commands, and what the page says that they bring about.

`STEPS` has an entry for each block. What the page promises about a backup is in `install_restore`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from astrabox.seams.scheduler import Schedule
from e2e.install_restore import begin_runs, check_restored, lose_everything, remember_backup
from e2e.install_stage import DEPLOYMENT, NAME, InstallStage, deploy_astrabox
from e2e.release import HOSTS
from e2e.waiting import until
from tools.controlplane import KubectlError
from tools.generated.paths import ROOT

OPERATORS: Final = 2
GRACE_SECONDS: Final = 45
CRDS: Final = ("deploymentschedules.scheduler.astrabox.io", "runinvocations.scheduler.astrabox.io")
_CATEGORIES: Final = "    categories:\n    - astrabox\n"
_OPERATOR_PODS: Final = ("-l", "app.kubernetes.io/component=operator")
_REVISIONS: Final = 2
"""Of the release, when it has been upgraded once."""
Before = Callable[[InstallStage], None]
Check = Callable[[InstallStage, str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """`before` is what the reader does before the commands, `check` gets what they have printed.

    `timeout` in seconds, of the commands alone.
    """

    before: Before | None = None
    check: Check | None = None
    timeout: float = 60.0


def tells(*wanted: str) -> Check:
    """The output has to have these."""

    def check(_: InstallStage, said: str) -> None:
        for each in wanted:
            assert each in said, f"{each!r} is not in what was printed:\n{said}"

    return check


def check_sample(sample: str, said: str) -> None:
    """The page shows such an output: the same headings, and columns that are filled alike."""
    shown, printed = sample.splitlines(), [line for line in said.splitlines() if line]
    headings = [line for line in shown if re.match(r"NAME ", line)]
    if not headings:
        assert shown == printed
    for heading in headings:
        found = [line.split() for line in printed if line.split()[:1] == ["NAME"]]
        assert heading.split() in found, f"the page shows {heading}, kubectl prints {found}"


def arrive(stage: InstallStage) -> None:
    """AstraBox runs, and the chart in the clone is an older one: the upgrade comes later."""
    deploy_astrabox(stage, os.environ)
    crd = stage.chart / "templates" / "crds" / "runinvocations.yaml"
    text = crd.read_text()
    assert text.count(_CATEGORIES) == 1
    crd.write_text(text.replace(_CATEGORIES, ""))


def check_operators(stage: InstallStage, _: str) -> None:
    """`--wait` means what it says."""
    status = _get(stage, "deployment", f"{NAME}-operator")["status"]
    assert (status["readyReplicas"], status["updatedReplicas"]) == (OPERATORS, OPERATORS)


def check_processes(_: InstallStage, said: str) -> None:
    """Two Leases of either kind."""
    roles = [line.split()[-1] for line in said.splitlines() if line]
    assert (roles.count("provider"), roles.count("operator")) == (HOSTS, OPERATORS), said


def schedule_one(stage: InstallStage) -> None:
    """In AstraBox, which is told so by one of its processes; a due time comes within the minute."""
    payload = {"agent": "reporter", "prompt": "Summarise yesterday"}
    stage.release.hosts[0].apply(Schedule(DEPLOYMENT, "* * * * *", "Europe/Berlin", True, payload))
    found = until(lambda: _runs(stage, "Succeeded"), 90, "a due time has become a run that has succeeded")
    stage.facts["run"] = found[0]["metadata"]["name"]


def upgrade_clone(stage: InstallStage) -> None:
    """The clone is brought to the new version."""
    assert "categories" not in _get(stage, "crd", CRDS[1])["spec"]["names"]
    stage.facts["before upgrade"] = {each["metadata"]["name"] for each in _runs(stage, "Succeeded")}
    shutil.rmtree(stage.chart)
    shutil.copytree(ROOT / "helm" / NAME, stage.chart)


def check_upgraded(stage: InstallStage, said: str) -> None:
    """The CRDs are the new ones, and the objects those of before."""
    assert len(re.findall(r"^[0-9]+\s", said, re.MULTILINE)) == _REVISIONS, said
    _check_revision(stage, ["astrabox"])


def check_rolled_back(stage: InstallStage, _: str) -> None:
    """So are the older ones; then the reader upgrades again, and goes on with that."""
    _check_revision(stage, None)
    stage.helm(
        "upgrade",
        NAME,
        str(stage.chart),
        "-n",
        stage.namespace,
        "-f",
        str(stage.clone / "values.yaml"),
        "--wait",
    )
    _check_revision(stage, ["astrabox"])


def check_uninstalled(stage: InstallStage, _: str) -> None:
    """What is the chart's is gone, what is the user's is there, and AstraBox runs without a scheduler."""
    kinds = "deployments,roles,rolebindings,serviceaccounts,poddisruptionbudgets"
    left = stage.kubectl("get", kinds, "-l", f"app.kubernetes.io/instance={NAME}", "-o", "name")
    assert left == ""
    assert set(CRDS) <= _crds(stage)
    assert _runs(stage, "Succeeded")
    assert len(stage.release.hosts) == HOSTS


def check_removed(stage: InstallStage, _: str) -> None:
    """Nothing of it is left in the namespace."""
    until(
        lambda: stage.kubectl("get", "dsched,runinv", "-o", "name") == "", 60, "schedules and runs are gone"
    )
    assert stage.kubectl("get", "leases", "-l", "scheduler.astrabox.io/role", "-o", "name") == ""


def check_crds_removed(stage: InstallStage, _: str) -> None:
    """Nor in the cluster."""
    until(lambda: not set(CRDS) & _crds(stage), 60, "the CRDs are gone")


def install_by_hand(stage: InstallStage) -> None:
    """As it was done before there was a chart: manifests, and an operator that the reader has written."""
    stage.node.kubectl("apply", "-f", str(ROOT / "crds" / "manifests"))
    stage.node.kubectl(
        "wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{each}" for each in CRDS)
    )
    stage.kubectl("apply", "-f", str(ROOT / "deploy"))
    rights = (f"--role={NAME}-provider", f"--serviceaccount={stage.namespace}:astrabox")
    stage.kubectl("create", "rolebinding", f"{NAME}-provider", *rights)
    stage.kubectl("apply", "-f", "-", input=yaml.safe_dump(_operator_by_hand(stage.environ)))
    stage.release.rolled_out(f"{NAME}-operator")
    spec = {"deploymentId": "kept", "cron": "0 0 1 1 *", "timeZone": "UTC", "payload": "{}"}
    item = {"apiVersion": "scheduler.astrabox.io/v1", "kind": "DeploymentSchedule", "spec": spec}
    stage.kubectl("apply", "-f", "-", input=json.dumps(item | {"metadata": {"name": "kept"}}))


def check_taken_over(stage: InstallStage, _: str) -> None:
    """The operators are those of the chart, and serve what was there."""
    check_operators(stage, "")
    assert len(json.loads(stage.kubectl("get", "pods", *_OPERATOR_PODS, "-o", "json"))["items"]) == OPERATORS
    stage.kubectl("wait", "--for=condition=Ready", "dsched/kept", "--timeout=30s")
    helm = stage.helm("get", "manifest", NAME, "-n", stage.namespace)
    assert all(name in helm for name in CRDS)


STEPS: Final[Mapping[str, Step]] = {
    "set-names": Step(),
    "check-prerequisites": Step(arrive, tells("Server Version", "yes", "astrabox")),
    "build-operator": Step(timeout=900),
    "build-wheel": Step(timeout=300),
    "build-astrabox": Step(timeout=900),
    "push-images": Step(check=lambda stage, _: stage.load_pushed(), timeout=300),
    "write-values": Step(),
    "install": Step(check=check_operators, timeout=300),
    "patch-astrabox": Step(check=lambda stage, _: _check_hosts(stage), timeout=300),
    "helm-test": Step(check=tells("Succeeded"), timeout=400),
    "see-processes": Step(check=check_processes),
    "see-schedules": Step(schedule_one),
    "to-utc": Step(),
    "set-question": Step(),
    "ask-run": Step(check=tells("Succeeded", "TurnAdmitted", "sess-")),
    "ask-schedule": Step(check=tells("Scheduled", "Active Since", "Next Due Time", "Events:")),
    "ask-events": Step(check=tells("skipped")),
    "wait-for-run": Step(check=tells("condition met"), timeout=90),
    "see-size": Step(check=tells("apiserver_storage_size_bytes")),
    "upgrade": Step(upgrade_clone, check_upgraded, timeout=300),
    "rollback": Step(check=check_rolled_back, timeout=300),
    "backup": Step(begin_runs, remember_backup),
    "set-restore": Step(),
    "stop": Step(timeout=300),
    "restore": Step(lose_everything),
    "compare": Step(check=lambda _, said: _check_silent(said)),
    "start": Step(check=check_restored, timeout=700),
    "see-unfinished": Step(),
    "uninstall": Step(check=check_uninstalled, timeout=400),
    "remove": Step(check=check_removed),
    "remove-crds": Step(check=check_crds_removed),
    "take-over": Step(install_by_hand, check_taken_over, timeout=300),
}


def _check_hosts(stage: InstallStage) -> None:
    deployment = _get(stage, "deployment", "astrabox")["spec"]["template"]["spec"]
    assert deployment["terminationGracePeriodSeconds"] == GRACE_SECONDS
    for host in stage.release.hosts:
        assert host.list_runs("nothing") == []


def _check_silent(said: str) -> None:
    assert said == ""


def _check_revision(stage: InstallStage, categories: list[str] | None) -> None:
    """Which CRDs there are, and that no object has gone with the others."""
    assert _get(stage, "crd", CRDS[1])["spec"]["names"].get("categories") == categories
    there = {each["metadata"]["name"] for each in _runs(stage, "Succeeded")}
    assert stage.facts["before upgrade"] <= there
    check_operators(stage, "")


def _get(stage: InstallStage, kind: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stage.kubectl("get", kind, name, "-o", "json"))
    return found


def _runs(stage: InstallStage, phase: str) -> list[dict[str, Any]]:
    chosen = f"spec.deploymentId={DEPLOYMENT},status.phase={phase}"
    try:
        return stage.release.objects("runinv", "--field-selector", chosen)
    except KubectlError:  # a definition that was just changed is served anew
        return []


def _crds(stage: InstallStage) -> set[str]:
    listed = stage.node.kubectl("get", "crd", "-o", "jsonpath={.items[*].metadata.name}")
    return set(listed.split())


def _operator_by_hand(environ: Mapping[str, str]) -> dict[str, Any]:
    labels = {"app": f"{NAME}-operator"}
    health = {"path": "/readyz", "port": 8080}
    container = {
        "name": "operator",
        "image": f"{environ['REGISTRY']}/{NAME}-operator:{environ['VERSION']}",
        "imagePullPolicy": "IfNotPresent",
        "readinessProbe": {"httpGet": health, "periodSeconds": 2},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "serviceAccountName": f"{NAME}-operator",
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": template}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"{NAME}-operator"},
        "spec": spec,
    }
