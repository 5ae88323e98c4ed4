"""Who can install the chart and look at its objects: Kubernetes' own roles, and what is added to them."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.chart.conftest import CONTROLLERS
from tests.chart.helm import RELEASE, Helm, HelmError, is_hook
from tests.definitions import install_definitions
from tools.controlplane import ControlPlane, KubectlError, ensure_binaries
from tools.generated.chart import CHART

pytestmark = [pytest.mark.chart, pytest.mark.timeout(180)]

WITHOUT_CRDS = ("--set", "crds.install=false")
OURS = "dsched,runinv"


@pytest.fixture(scope="module")
def aggregation(own_cluster: ControlPlane) -> ControlPlane:
    """Our kinds, and the one controller that fills `view`, `edit` and `admin`; without it they are empty."""
    install_definitions(own_cluster)
    binary = ensure_binaries(CONTROLLERS) / CONTROLLERS[0]
    command = [
        str(binary),
        f"--kubeconfig={own_cluster.kubeconfig}",
        "--leader-elect=false",
        "--controllers=clusterrole-aggregation-controller",
        "--secure-port=0",
    ]
    own_cluster.processes.start(CONTROLLERS[0], command)
    return own_cluster


@pytest.fixture
def space(aggregation: ControlPlane) -> Iterator[str]:
    """A namespace with somebody who has each of the roles in it."""
    name = aggregation.create_namespace(f"people-{secrets.token_hex(4)}")
    for role in ("admin", "edit", "view"):
        account = f"{name}:{role}"
        aggregation.kubectl(
            "create", "rolebinding", role, "-n", name, f"--clusterrole={role}", f"--serviceaccount={account}"
        )
    for role, right in (
        ("admin", "create roles"),
        ("edit", "create deployments"),
        ("view", "get deployments"),
    ):
        await_right(aggregation, name, role, right, there=True)
    yield name
    aggregation.discard_namespace(name)


@pytest.fixture
def admin(helm: Helm, aggregation: ControlPlane, space: str) -> Helm:
    """Helm of somebody who is `admin` in the namespace, and nothing in the cluster."""
    kubeconfig: Path = aggregation.service_account_kubeconfig(space, "admin")
    return helm.of(kubeconfig)


def test_an_admin_of_the_namespace_alone_cannot_give_what_he_does_not_have(
    admin: Helm, aggregation: ControlPlane, space: str
) -> None:
    """IN-06: what the chart's README says then, and the way that it names."""
    await_right(aggregation, space, "admin", "create deploymentschedules", there=False)
    with pytest.raises(HelmError, match="is attempting to grant RBAC permissions not currently held"):
        admin.run("install", "refused", str(CHART), "-n", space, *WITHOUT_CRDS)
    admin.run("uninstall", "refused", "-n", space)
    made_by_another = "crds.install=false,rbac.create=false,astrabox.rbac=false,tests.enabled=false"
    admin.run("install", RELEASE, str(CHART), "-n", space, "--set", made_by_another)
    with pytest.raises(KubectlError, match="cannot list resource"):
        aggregation.kubectl("get", OURS, "-n", space, as_one_with("view", space))
    admin.run("uninstall", RELEASE, "-n", space)


def test_with_the_aggregated_roles_an_admin_installs_and_others_look(
    helm: Helm, admin: Helm, aggregation: ControlPlane, space: str
) -> None:
    """IN-06: an administrator has brought the CRDs and these roles, once for the cluster."""
    administrator = helm.of(aggregation.kubeconfig)
    elsewhere = aggregation.create_namespace(f"first-{secrets.token_hex(4)}")
    roles = ("--set", "rbac.aggregateToDefaultRoles=true", "--set", "replicas=0")
    administrator.run("install", "first", str(CHART), "-n", elsewhere, *WITHOUT_CRDS, *roles)
    try:
        for role, right in (
            ("admin", "patch runinvocations --subresource=status"),
            ("admin", "delete runinvocations"),
            ("edit", "create deploymentschedules"),
            ("view", "list runinvocations"),
        ):
            await_right(aggregation, space, role, right, there=True)
        policy = ("--set", "networkPolicy.enabled=true")
        admin.run("install", RELEASE, str(CHART), "-n", space, *WITHOUT_CRDS, *policy)
        hooks = [each for each in yaml.safe_load_all(admin.run("get", "hooks", RELEASE, "-n", space)) if each]
        assert all(map(is_hook, hooks))
        aggregation.kubectl("create", as_one_with("admin", space), "-f", "-", input=yaml.safe_dump_all(hooks))
        look_and_touch(aggregation, space)
        admin.run("uninstall", RELEASE, "-n", space)
    finally:
        administrator.run("uninstall", "first", "-n", elsewhere)
        await_right(
            aggregation, space, "admin", "patch deploymentschedules --subresource=status", there=False
        )
        aggregation.discard_namespace(elsewhere)


def look_and_touch(cluster: ControlPlane, space: str) -> None:
    """Who has `view` sees both kinds and changes nothing; who has `edit` changes them."""
    spec = {"deploymentId": "a", "cron": "0 0 1 1 *", "timeZone": "UTC", "payload": "{}"}
    schedule = {
        "apiVersion": "scheduler.astrabox.io/v1",
        "kind": "DeploymentSchedule",
        "metadata": {"name": "a", "namespace": space},
        "spec": spec,
    }
    view, edit = as_one_with("view", space), as_one_with("edit", space)
    with pytest.raises(KubectlError, match="cannot create resource"):
        cluster.kubectl("create", view, "-f", "-", input=json.dumps(schedule))
    cluster.kubectl("create", edit, "-f", "-", input=json.dumps(schedule))
    assert cluster.kubectl("get", OURS, view, "-n", space, "-o", "name").split() == [
        "deploymentschedule.scheduler.astrabox.io/a"
    ]
    with pytest.raises(KubectlError, match="cannot delete resource"):
        cluster.kubectl("delete", "dsched", "a", view, "-n", space)
    cluster.kubectl("delete", "dsched", "a", edit, "-n", space)


def await_right(cluster: ControlPlane, space: str, role: str, right: str, *, there: bool) -> None:
    """Who has the role may do this (`create deployments`), or may not. Raises AssertionError after 60 s."""
    question = ("auth", "can-i", *right.split(), "-n", space, as_one_with(role, space))
    deadline = time.monotonic() + 60
    while allowed(cluster, question) != there:
        assert time.monotonic() < deadline, f"{role} {'cannot' if there else 'still can'} {right}"
        time.sleep(0.1)


def allowed(cluster: ControlPlane, question: tuple[str, ...]) -> bool:
    try:
        return cluster.kubectl(*question).strip() == "yes"
    except KubectlError:  # its exit code for a no
        return False


def as_one_with(role: str, space: str) -> str:
    return f"--as=system:serviceaccount:{space}:{role}"
