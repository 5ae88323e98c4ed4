"""What an administrator does with a release while AstraBox runs: upgrade, roll back, uninstall, install."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from astrabox.seams.scheduler import ScheduledRun
from e2e.hosts import HostPod
from e2e.images import Images
from e2e.minutely import start_minutely
from e2e.previous import FIELD, VERSION, previous_chart, previous_command
from e2e.release import Release, chart_values, deploy_hosts, deploy_repository, install
from e2e.waiting import now, until, whole_minute
from tools.controlplane import Cluster
from tools.generated.chart import CHART
from tools.helm import Helm

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

LEASE = timedelta(seconds=15)
"""How long it may take a host to be there again, after it could not say so for a while."""
ONE_FAILURE = {"behaviour": {"start_session": "fail:1"}}


def run_now(host: HostPod, deployment_id: str = "asked-for") -> ScheduledRun:
    """A run that fails once and succeeds then, 2 s later."""
    run_id = host.enqueue(deployment_id, ONE_FAILURE).run_id

    def found() -> ScheduledRun | None:
        runs = {run.run_id: run for run in host.list_runs(deployment_id)}
        return runs[run_id] if runs[run_id].status == "completed" else None

    run = until(found, 30, f"{run_id} is completed")
    assert run is not None
    return run


def failures(release: Release, run: ScheduledRun) -> int | None:
    status = json.loads(release.kubectl("get", "runinv", run.run_id, "-o", "json"))["status"]
    found: int | None = status.get(FIELD)
    return found


def chart_version(release: Release) -> str:
    label = r"{.metadata.labels.helm\.sh/chart}"
    return release.kubectl("get", "deployment", release.operator, "-o", f"jsonpath={label}")


def test_upgrade_rollback_uninstall_and_install_again(
    cluster: Cluster, images: Images, helm: Helm, namespace: str, tmp_path: Path
) -> None:
    """IN-01, IN-03, IN-04: schedules and runs outlive all of it, and none of their due times is doubled."""
    deploy_repository(cluster, namespace, images)
    release = install(cluster, helm, images, namespace, chart=previous_chart(tmp_path / "previous"))
    deploy_hosts(release, images, {"command": previous_command("astrabox.host")})
    minutely = start_minutely(release)
    host = release.hosts[0]
    assert chart_version(release) == f"astrabox-scheduler-{VERSION}"
    first = run_now(host)
    assert failures(release, first) is None, "the previous definition keeps no such field"

    upgrade = ("upgrade", release.name, str(CHART), "-n", namespace, "--wait", *chart_values(images))
    helm(*upgrade)
    assert chart_version(release) != f"astrabox-scheduler-{VERSION}"
    during = run_now(host)  # by a host that is still the previous one
    deploy_hosts(release, images)
    host = release.hosts[0]
    second = run_now(host)
    assert failures(release, second) == 1

    helm("rollback", release.name, "1", "-n", namespace, "--wait")
    assert chart_version(release) == f"astrabox-scheduler-{VERSION}"
    third = run_now(host)
    assert failures(release, third) is None
    minutely.check(whole_minute(now()))

    helm(*upgrade)
    before = {kind: release.kubectl("get", kind, "-o", "name").split() for kind in ("dsched", "runinv")}
    helm("uninstall", release.name, "-n", namespace, "--wait")
    gone = now()
    left = release.kubectl("get", "deploy,role,rolebinding,sa", "-o", "name").split()
    assert [each for each in left if release.name in each] == []
    assert set(release.kubectl("get", "runinv", "-o", "name").split()) >= set(before["runinv"])
    assert release.kubectl("get", "dsched", "-o", "name").split() == before["dsched"]

    install(cluster, helm, images, namespace)
    back = now()
    runs = {run.run_id for run in host.list_runs("asked-for")}
    assert runs == {run.run_id for run in (first, during, second, third)}
    run_now(host)
    minutely.check(whole_minute(now()) + timedelta(minutes=1), away=(gone, back + LEASE))
    pods = release.objects("pods", "-l", "app=astrabox")
    assert {each["restartCount"] for pod in pods for each in pod["status"]["containerStatuses"]} == {0}
