"""What the accounts of both sides may do on a real cluster: what the tables say, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path

import pytest

from astrabox.seams.scheduler import SchedulerConfigurationError
from astrabox_scheduler_client.api import open_api
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_crds.labels import GROUP, VERSION
from astrabox_scheduler_crds.permissions import (
    OPERATOR_PERMISSIONS,
    PROVIDER_PERMISSIONS,
    Permission,
    by_resource,
    role_rules,
)
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from astrabox_scheduler_kubernetes.settings import PREFIX
from astrabox_scheduler_operator.preflight import Preflight
from e2e.hosts import SERVICE_ACCOUNT, host_manifests
from e2e.images import Images
from e2e.release import Release
from e2e.requests import Resource, bearer
from e2e.waiting import until
from tools.controlplane import Cluster
from tools.generated.chart import CHART
from tools.helm import Helm

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

SIDES = {"provider": PROVIDER_PERMISSIONS, "operator": OPERATOR_PERMISSIONS}
SUBRESOURCES = (
    *(Resource(GROUP, VERSION, f"{name}/status") for name in ("deploymentschedules", "runinvocations")),
    *(Resource("", "v1", f"pods/{name}") for name in ("exec", "log", "portforward", "eviction")),
    Resource("", "v1", "serviceaccounts/token"),
    Resource("apps", "v1", "deployments/scale"),
)
SECRETS = """
import os, ssl, urllib.request, urllib.error
folder = "/var/run/secrets/kubernetes.io/serviceaccount/"
address = os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
path = "/api/v1/namespaces/" + open(folder + "namespace").read() + "/secrets"
headers = {"Authorization": "Bearer " + open(folder + "token").read()}
request = urllib.request.Request("https://" + address + path, headers=headers)
try:
    urllib.request.urlopen(request, context=ssl.create_default_context(cafile=folder + "ca.crt"), timeout=10)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.fixture
def account(request: pytest.FixtureRequest, release: Release, side: str) -> str:
    """Name of the service account of one side."""
    return release.operator if side == "operator" else SERVICE_ACCOUNT


def namespaced_resources(cluster: Cluster) -> list[Resource]:
    """All that this API server serves, and some subresources that lead further."""
    lines = cluster.kubectl("api-resources", "--namespaced=true", "--no-headers").splitlines()
    found = []
    for line in lines:
        name, (version, _, _) = line.split()[0], line.split()[-3:]
        group, _, version = version.rpartition("/")
        found.append(Resource(group, version, name))
    return [*found, *SUBRESOURCES]


@pytest.mark.parametrize("side", SIDES)
def test_every_request_beyond_the_table_is_refused(
    release: Release, cluster: Cluster, side: str, account: str
) -> None:
    """Sent for real, each verb on each resource that the API server serves."""
    client = bearer(cluster.service_account_kubeconfig(release.namespace, account))
    table = SIDES[side]
    wrong = []
    for resource in namespaced_resources(cluster):
        for verb in resource.verbs:
            allowed = client.status(resource, release.namespace, verb) != HTTPStatus.FORBIDDEN
            if allowed != (Permission(resource.group, resource.name, verb) in table):
                wrong.append((verb, resource, allowed))
    assert wrong == []
    for resource in {Resource(each.group, "v1", each.resource) for each in table}:
        for verb in resource.verbs:
            assert client.status(resource, "default", verb) == HTTPStatus.FORBIDDEN


@pytest.mark.parametrize("side", SIDES)
def test_kubectl_lists_the_table(release: Release, side: str, account: str) -> None:
    """Whatever gives the account a right, cluster roles and groups too, is in this list."""
    user = f"system:serviceaccount:{release.namespace}:{account}"
    rows = release.kubectl("auth", "can-i", "--list", f"--as={user}", "--no-headers").splitlines()
    listed = {
        row.split()[0]: row.rpartition("[")[2].rstrip("]").split() for row in rows if not row.startswith(" ")
    }
    wanted: dict[str, list[str]] = {}
    for each in SIDES[side]:
        resource, slash, subresource = each.resource.partition("/")
        wanted.setdefault(f"{resource}.{each.group}{slash}{subresource}", []).append(each.verb)
    asked_by_all = {name for name in listed if name.startswith("selfsubject")}
    assert {name: sorted(verbs) for name, verbs in listed.items() if name not in asked_by_all} == {
        name: sorted(verbs) for name, verbs in wanted.items()
    }


def test_no_pod_can_read_secrets(release: Release) -> None:
    """Asked from inside, with the token that the pod has."""
    for pod in (release.operator, "astrabox"):
        assert release.kubectl("exec", f"deploy/{pod}", "--", "python", "-c", SECRETS) == "403\n"


def complaints_of_provider(kubeconfig: Path, namespace: str) -> str:
    variables = {f"{PREFIX}KUBECONFIG": str(kubeconfig), f"{PREFIX}NAMESPACE": namespace}
    try:
        KubernetesSchedulerProvider(environ=variables).configure(repository_backend=object())
    except SchedulerConfigurationError as error:
        return str(error)
    return ""


def complaints_of_operator(kubeconfig: Path, namespace: str) -> str:
    async def ask() -> str:
        api = await open_api(ConnectSettings(kubeconfig=str(kubeconfig)), namespace)
        try:
            return await Preflight(api.discovery, api.access, namespace).missing() or ""
        finally:
            await api.aclose()

    return asyncio.run(ask())


COMPLAINTS = {"provider": complaints_of_provider, "operator": complaints_of_operator}
VALUES = {"provider": "astrabox.serviceAccounts", "operator": "rbac.create=true"}


def set_rules(release: Release, role: str, permissions: Sequence[Permission]) -> None:
    patch = [{"op": "replace", "path": "/rules", "value": role_rules(permissions)}]
    release.kubectl("patch", "role", role, "--type=json", "-p", json.dumps(patch))


@pytest.mark.parametrize("side", SIDES)
def test_each_right_of_the_chart_is_missed_when_it_is_taken(
    release: Release, cluster: Cluster, side: str, account: str
) -> None:
    table, role = SIDES[side], getattr(release, side)
    kubeconfig = cluster.service_account_kubeconfig(release.namespace, account)

    def missed() -> set[Permission]:
        said = COMPLAINTS[side](kubeconfig, release.namespace)
        assert not said or VALUES[side] in said
        return {each for each in table if f"{each} " in said or f"{each}:" in said or f"{each}," in said}

    assert missed() == set()
    try:
        for taken in table:
            set_rules(release, role, [each for each in table if each != taken])
            until(lambda taken=taken: missed() == {taken}, 10, f"{taken} is missed", every=0.1)  # type: ignore[misc]
    finally:
        set_rules(release, role, table)
    until(lambda: missed() == set(), 10, "nothing is missed", every=0.1)


def test_a_pod_of_another_account_says_what_it_lacks_and_starts_when_that_is_done(
    release: Release, images: Images, helm: Helm
) -> None:
    stranger = pod_of("stranger", images)
    release.kubectl("create", "serviceaccount", "stranger")
    release.kubectl("apply", "-f", "-", input=json.dumps(stranger))
    release.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/stranger", "--timeout=60s")
    said = release.kubectl("logs", "stranger")
    told = [line for line in said.splitlines() if " may not " in line]
    assert told == [
        f"  - the account system:serviceaccount:{release.namespace}:stranger may not {each} "
        f"in namespace {release.namespace}"
        for each in by_resource(PROVIDER_PERMISSIONS)
    ]
    assert "name it in astrabox.serviceAccounts of the chart's values" in said

    accounts = (
        f"astrabox.serviceAccounts[{number}].name={name}"
        for number, name in enumerate((SERVICE_ACCOUNT, "stranger"))
    )
    helm(
        *("upgrade", release.name, str(CHART), "-n", release.namespace, "--reuse-values", "--wait"),
        *(f"--set={each}" for each in accounts),
    )
    release.kubectl("delete", "pod", "stranger")
    release.kubectl("apply", "-f", "-", input=json.dumps(stranger))
    release.kubectl("wait", "--for=condition=Ready", "pod/stranger", "--timeout=60s")
    release.kubectl("delete", "pod", "stranger")


def pod_of(account: str, images: Images) -> Mapping[str, object]:
    """A host of another service account, which is not started again when it ends."""
    (template,) = (
        each["spec"]["template"]
        for each in host_manifests("astrabox", images.host)
        if each["kind"] == "Deployment"
    )
    spec = template["spec"] | {"serviceAccountName": account, "restartPolicy": "Never"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": account}, "spec": spec}
