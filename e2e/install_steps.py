"""What a reader of docs/install.md does between its commands, and what the page says that they bring about.

`STEPS` has an entry for each block. What the page promises about a backup is in `install_restore`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from astrabox.seams.scheduler import Schedule
from e2e.install_restore import begin_runs, check_restored, lose_everything, remember_backup
from e2e.install_stage import CRDS, DEPLOYMENT, NAME, OPERATORS, InstallStage, deploy_astrabox
from e2e.install_upgrade import (
    BUILD_SECONDS,
    bring_to_next,
    build_again,
    check_rolled_back,
    check_rolled_out,
    check_undone,
    check_upgraded,
    make_older,
)
from e2e.kubectl_tables import heading_line, rows, tables
from e2e.release import HOSTS
from e2e.waiting import until
from tools.generated.paths import ROOT

GRACE_SECONDS: Final = 45
_OPERATOR_PODS: Final = ("-l", "app.kubernetes.io/component=operator")
Before = Callable[[InstallStage], None]
Check = Callable[[InstallStage, str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """`before` is what the reader does before the commands, `check` gets what they have printed.

    `timeout` in seconds, of the commands alone; `builds`: they build images. `both_streams`: the page
    speaks of what they write to standard error, too.
    """

    before: Before | None = None
    check: Check | None = None
    timeout: float = 60.0
    builds: bool = False
    both_streams: bool = False


def tells(*wanted: str) -> Check:
    """The output has to have these."""

    def check(_: InstallStage, said: str) -> None:
        for each in wanted:
            assert each in said, f"{each!r} is not in what was printed:\n{said}"

    return check


def check_sample(sample: str, said: str) -> None:
    """The page shows such an output: the same headings, and a row whose cells are filled alike.

    What is no table is the same, letter by letter.
    """
    shown, printed = tables(sample), tables(said)
    if not shown:
        assert sample.splitlines() == said.splitlines()
    for table in shown:
        headings = heading_line(table).split()
        found = [each for each in printed if heading_line(each).split() == headings]
        assert found, f"the page shows {headings}, kubectl prints {[heading_line(each) for each in printed]}"
        filled = [_empty(row) for each in found for row in rows(each).values()]
        for name, row in rows(table).items():
            assert _empty(row) in filled, f"in no row are cells filled as the page shows {name}:\n{said}"


def arrive(stage: InstallStage) -> None:
    """AstraBox runs, and the chart in the clone is an older one: the upgrade comes later."""
    deploy_astrabox(stage, os.environ)
    make_older(stage)


def check_operators(stage: InstallStage, _: str) -> None:
    """`--wait` means what it says."""
    stage.check_operators()


def check_processes(_: InstallStage, said: str) -> None:
    """Two Leases of either kind."""
    roles = [line.split()[-1] for line in said.splitlines() if line]
    assert (roles.count("provider"), roles.count("operator")) == (HOSTS, OPERATORS), said


def schedule_one(stage: InstallStage) -> None:
    """In AstraBox, which is told so by one of its processes; a due time comes within the minute."""
    payload = {"agent": "reporter", "prompt": "Summarise yesterday"}
    stage.release.hosts[0].apply(Schedule(DEPLOYMENT, "* * * * *", "Europe/Berlin", True, payload))
    found = until(lambda: stage.runs("Succeeded"), 90, "a due time has become a run that has succeeded")
    stage.facts["run"] = found[0]["metadata"]["name"]
    until(
        lambda: "lastDueTime" in stage.get("dsched", DEPLOYMENT)["status"],
        30,
        "the schedule's status says so",
    )


def check_uninstalled(stage: InstallStage, _: str) -> None:
    """What is the chart's is gone, what is the user's is there, and AstraBox runs without a scheduler."""
    kinds = "deployments,roles,rolebindings,serviceaccounts,poddisruptionbudgets"
    left = stage.kubectl("get", kinds, "-l", f"app.kubernetes.io/instance={NAME}", "-o", "name")
    assert left == ""
    assert set(CRDS) <= _crds(stage)
    assert stage.runs("Succeeded")
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
    stage.check_operators()
    assert len(json.loads(stage.kubectl("get", "pods", *_OPERATOR_PODS, "-o", "json"))["items"]) == OPERATORS
    stage.kubectl("wait", "--for=condition=Ready", "dsched/kept", "--timeout=30s")
    helm = stage.helm("get", "manifest", NAME, "-n", stage.namespace)
    assert all(name in helm for name in CRDS)


STEPS: Final[Mapping[str, Step]] = {
    "set-names": Step(),
    "check-prerequisites": Step(arrive, tells("Server Version", "jq-", "3.", "yes", "astrabox")),
    "build-operator": Step(timeout=BUILD_SECONDS, builds=True),
    "build-wheel": Step(timeout=BUILD_SECONDS, builds=True),
    "write-containerfile": Step(),
    "build-astrabox": Step(timeout=BUILD_SECONDS, builds=True),
    "push-images": Step(check=lambda stage, _: stage.load_pushed(), timeout=BUILD_SECONDS, builds=True),
    "write-values": Step(),
    "install": Step(check=check_operators, timeout=300),
    "patch-astrabox": Step(check=lambda stage, _: _check_hosts(stage), timeout=300),
    "helm-test": Step(
        check=tells("Succeeded", "was created", "AstraBox has dispatched it"), timeout=400, both_streams=True
    ),
    "see-processes": Step(check=check_processes),
    "see-schedules": Step(schedule_one),
    "to-utc": Step(),
    "set-question": Step(),
    "ask-run": Step(check=tells("Succeeded", "TurnAdmitted", "sess-")),
    "ask-schedule": Step(check=tells("Scheduled", "Active Since", "Next Due Time", "Events:")),
    "ask-skipped": Step(),  # nothing yet; it is asked again after the restore
    "wait-for-run": Step(check=tells("condition met"), timeout=90),
    "see-size": Step(check=tells("apiserver_storage_size_bytes")),
    "set-new-version": Step(bring_to_next, build_again),
    "upgrade": Step(check=check_upgraded, timeout=300),
    "roll-out": Step(check=check_rolled_out, timeout=400),
    "undo": Step(check=check_undone, timeout=400),
    "set-revision": Step(),
    "rollback": Step(check=check_rolled_back, timeout=300),
    "backup": Step(begin_runs, remember_backup),
    "set-restore": Step(),
    "stop": Step(timeout=400),
    "clear": Step(check=check_removed, timeout=120),
    "install-stopped": Step(lose_everything, timeout=300),
    "restore": Step(),
    "compare": Step(check=lambda _, said: _check_silent(said)),
    "start": Step(check=check_restored, timeout=700),
    "see-unfinished": Step(),
    "uninstall": Step(check=check_uninstalled, timeout=400),
    "remove": Step(check=check_removed),
    "remove-crds": Step(check=check_crds_removed),
    "take-over": Step(install_by_hand, check_taken_over, timeout=300),
}


def _check_hosts(stage: InstallStage) -> None:
    deployment = stage.get("deployment", "astrabox")["spec"]["template"]["spec"]
    assert deployment["terminationGracePeriodSeconds"] == GRACE_SECONDS
    for host in stage.release.hosts:
        assert host.list_runs("nothing") == []


def _empty(row: Mapping[str, str]) -> set[str]:
    return {heading for heading, cell in row.items() if not cell}


def _check_silent(said: str) -> None:
    assert said == ""


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
