"""configure on a real API server: everything that is missing, at once, with what to do."""

import json
import logging
from dataclasses import replace

import pytest

from astrabox.seams.scheduler import SchedulerConfigurationError
from astrabox_scheduler_crds.permissions import PROVIDER_PERMISSIONS, Permission, by_resource, role_rules
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from astrabox_scheduler_kubernetes.settings import PREFIX
from tests.apiserver.provider.handlers import Instant, rule
from tests.apiserver.provider.scenery import QUICK, Place
from tests.apiserver.provider.stored import names
from tools.controlplane import Cluster

ACCOUNT = "system:serviceaccount:{}:astrabox"


def grant(cluster: Cluster, namespace: str, permissions: tuple[Permission, ...]) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "provider", "namespace": namespace},
        "rules": role_rules(permissions),
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "provider", "namespace": namespace},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "provider"},
        "subjects": [{"kind": "ServiceAccount", "name": "astrabox", "namespace": namespace}],
    }
    cluster.kubectl(
        "apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": [role, binding]})
    )


def problems(variables: dict[str, str]) -> list[str]:
    provider = KubernetesSchedulerProvider(environ=variables, timing=QUICK)
    with pytest.raises(SchedulerConfigurationError) as caught:
        provider.configure(repository_backend=None)
    first, *lines = str(caught.value).splitlines()
    assert first == "the scheduler provider `kubernetes` cannot run here:"
    return [line.removeprefix("  - ") for line in lines]


def account(cluster: Cluster, namespace: str) -> dict[str, str]:
    path = cluster.service_account_kubeconfig(namespace, "astrabox")
    return {f"{PREFIX}KUBECONFIG": str(path), f"{PREFIX}NAMESPACE": namespace}


async def test_everything_that_is_missing_is_said_at_once(
    control_plane: Cluster, crds_installed: None, namespace: str
) -> None:
    """No rights at all, a wrong number: one error with a line for each, and for each what to do."""
    variables = account(control_plane, namespace) | {f"{PREFIX}CONCURRENCY": "many"}
    lines = problems(variables)
    assert any(line.startswith(f"{PREFIX}CONCURRENCY='many'") for line in lines)
    told = [line for line in lines if " may not " in line]
    assert told == [
        f"the account {ACCOUNT.format(namespace)} may not {each} in namespace {namespace}"
        for each in by_resource(PROVIDER_PERMISSIONS)
    ]
    (hint,) = [line for line in lines if "to grant what the account lacks" in line]
    assert "name it in astrabox.serviceAccounts of the chart's values, with astrabox.rbac=true" in hint
    assert f"`kubectl -n {namespace} create rolebinding " in hint


async def test_namespace_without_an_operator(
    control_plane: Cluster, crds_installed: None, namespace: str
) -> None:
    """Called inside a running event loop."""
    variables = {f"{PREFIX}KUBECONFIG": str(control_plane.kubeconfig), f"{PREFIX}NAMESPACE": namespace}
    (line,) = problems(variables)
    assert line.startswith(f"no operator has ever run in namespace {namespace}: install the chart")
    assert f"{PREFIX}NAMESPACE" in line


async def test_each_right_that_is_missing_is_named(
    control_plane: Cluster, place: Place, namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """And with all of them the provider runs: nothing more is used than the table says."""
    variables = account(control_plane, namespace)
    for missing in PROVIDER_PERMISSIONS:
        grant(control_plane, namespace, tuple(each for each in PROVIDER_PERMISSIONS if each != missing))
        lines = problems(variables)
        assert [line for line in lines if "may not" in line] == [
            f"the account {ACCOUNT.format(namespace)} may not {missing} in namespace {namespace}"
        ]
    grant(control_plane, namespace, PROVIDER_PERMISSIONS)
    timing = replace(QUICK, recently=0.0)
    provider = KubernetesSchedulerProvider(environ=place.environ | variables, timing=timing)
    provider.configure(repository_backend=object())
    await provider.start(Instant())
    await provider.reconcile([rule()])
    await provider.apply(rule(payload={"new": 1}))
    run = await provider.enqueue("d", {}, trigger="manual")
    await place.until_phase(run.run_id, "Succeeded")
    orphan = await place.create_run()
    await place.until_phase(orphan, "Succeeded")
    await provider.delete("d")
    await provider.apply(rule("unlisted"))
    await provider.reconcile([])
    assert "unlisted" not in await names(place)
    await provider.stop()
    (lease,) = [each for each in await place.api.leases.list() if each.role == "provider"]
    assert lease.released
    (told,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert told.endswith("1 removed that it does not have ('unlisted')")


async def test_operator_that_is_down_is_a_warning(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    lease = await place.api.leases.get("operator-0")
    await place.api.leases.replace(lease.changed(spec=lease.spec.changed(holder_identity=None)))
    with caplog.at_level(logging.WARNING):
        place.provider()
    assert "no operator is running" in caplog.text


def test_configure_without_an_event_loop(
    control_plane: Cluster, crds_installed: None, namespace: str
) -> None:
    (line,) = problems(
        {f"{PREFIX}KUBECONFIG": str(control_plane.kubeconfig), f"{PREFIX}NAMESPACE": namespace}
    )
    assert "no operator" in line
