"""The chart on a real API server without nodes: accepted, installed, upgraded, taken away, found again."""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.helm import ALL_ON, OPERATOR, POD_MONITOR, RELEASE, Helm, HelmError, is_hook, named
from tests.definitions import MANIFESTS
from tools.controlplane import BuildError, ControlPlane, KubectlError
from tools.controlplane.modules import ensure_module
from tools.generated.chart import CHART
from tools.generated.paths import ROOT

pytestmark = [pytest.mark.chart, pytest.mark.timeout(180)]

CRDS = ("deploymentschedules.scheduler.astrabox.io", "runinvocations.scheduler.astrabox.io")
THIRD_PARTY = ("servicemonitors", "podmonitors", "prometheusrules")
OLDER = ("    - runinv\n", "    - olderrun\n")
"""What an older version of a CRD has instead."""
RESTRICTED = {"labels": {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}}


@pytest.fixture(scope="module", autouse=True)
def third_party(own_cluster: ControlPlane) -> None:
    """The Prometheus operator's own definitions of its kinds."""
    folder = ensure_module("monitoring") / "example" / "prometheus-operator-crd"
    for plural in THIRD_PARTY:
        own_cluster.kubectl("create", "-f", str(folder / f"monitoring.coreos.com_{plural}.yaml"))
    own_cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


@pytest.fixture
def space(own_cluster: ControlPlane) -> Iterator[str]:
    """A restricted namespace; our CRDs are gone at the end, and with them all that others could find."""
    name = f"chart-{secrets.token_hex(4)}"
    own_cluster.post("/api/v1/namespaces", {"metadata": {"name": name, **RESTRICTED}})
    yield name
    own_cluster.kubectl("delete", "crd", *CRDS, "--ignore-not-found", "--wait=false")
    await_removal(own_cluster)


@pytest.fixture
def older_chart(tmp_path: Path) -> Path:
    """A chart whose CRDs differ from ours."""
    chart: Path = shutil.copytree(CHART, tmp_path / "older")
    crd = chart / "templates" / "crds" / "runinvocations.yaml"
    text = crd.read_text()
    assert OLDER[0] in text
    crd.write_text(text.replace(*OLDER))
    return chart


@pytest.mark.parametrize("values", [{}, ALL_ON, POD_MONITOR], ids=["default", "everything", "pod monitor"])
def test_the_api_server_accepts_every_object(
    helm: Helm, own_cluster: ControlPlane, space: str, values: dict[str, Any]
) -> None:
    """Unknown fields and pods that are not restricted are errors."""
    objects = helm.render(values, namespace=space)
    accounts = [each for each in objects if each["kind"] == "ServiceAccount"]
    own_cluster.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(accounts))  # a pod needs its account
    apply = ("apply", "--server-side", "--validate=strict", "--warnings-as-errors", "-f", "-")
    own_cluster.kubectl(*apply, "--dry-run=server", input=yaml.safe_dump_all(objects))
    assert "not found" in failure(own_cluster, "get", "deployment", OPERATOR, "-n", space)


def test_a_pod_that_is_not_restricted_would_be_noticed(
    newest_helm: Helm, own_cluster: ControlPlane, space: str
) -> None:
    deployment = next(
        each for each in newest_helm.render({}, namespace=space) if each["kind"] == "Deployment"
    )
    del deployment["spec"]["template"]["spec"]["securityContext"]["seccompProfile"]
    apply = ("apply", "--server-side", "--dry-run=server", "--warnings-as-errors", "-f", "-")
    with pytest.raises(KubectlError, match="seccompProfile"):
        own_cluster.kubectl(*apply, input=yaml.safe_dump(deployment))


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("ServiceMonitor", ("spec", "endpoints", 0, "intervall"), "30s"),
        ("ServiceMonitor", ("spec", "endpoints", 0, "interval"), "30"),
        ("PrometheusRule", ("spec", "groups", 0, "rules", 0, "expr"), None),
    ],
)
def test_a_field_that_the_prometheus_operator_does_not_have_would_be_noticed(
    newest_helm: Helm,
    own_cluster: ControlPlane,
    space: str,
    *,
    kind: str,
    path: tuple[str | int, ...],
    value: Any,
) -> None:
    item: Any = named(newest_helm.render(ALL_ON, namespace=space), kind)
    place = item
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    apply = ("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-")
    with pytest.raises(KubectlError, match=str(path[-1])):
        own_cluster.kubectl(*apply, input=yaml.safe_dump(item))


def test_the_life_of_a_release(installer: Helm, own_cluster: ControlPlane, space: str) -> None:
    """Installed, upgraded, rolled back, taken away; schedules outlive it, and it finds them again."""
    notes = installer.run("install", RELEASE, str(CHART), "-n", space, "--set", "crds.keep=true")
    assert "ASTRABOX_SCHEDULER_PROVIDER=kubernetes" in notes
    assert history_limit(own_cluster, space) == "200"
    write_schedule(own_cluster, space)
    installer.run("upgrade", RELEASE, str(CHART), "-n", space, "--set", "settings.historyLimit=5")
    assert history_limit(own_cluster, space) == "5"
    installer.run("rollback", RELEASE, "1", "-n", space)
    assert history_limit(own_cluster, space) == "200"
    uninstall(installer, space)
    left = own_cluster.kubectl("get", "deploy,sa,role,rolebinding,pdb,cm", "-n", space, "-o", "name").split()
    assert [each for each in left if RELEASE in each] == []
    assert own_cluster.kubectl("get", "dsched", "-n", space, "-o", "name").split() == [
        "deploymentschedule.scheduler.astrabox.io/kept"
    ]
    installer.run("install", RELEASE, str(CHART), "-n", space)
    assert history_limit(own_cluster, space) == "200"
    uninstall(installer, space)


def test_everything_on_is_installed_and_taken_away(
    installer: Helm, own_cluster: ControlPlane, space: str
) -> None:
    installer.run("install", RELEASE, str(CHART), "-n", space, "-f", "-", given=yaml.safe_dump(dict(ALL_ON)))
    cluster_wide = ("flowschemas", "prioritylevelconfigurations", "clusterroles")
    kinds = ",".join((*THIRD_PARTY, "networkpolicies", *cluster_wide))
    everything = own_cluster.kubectl(
        "get", kinds, "-n", space, "-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name"
    )
    assert len(everything.split()) == 9
    uninstall(installer, space)
    assert (
        own_cluster.kubectl(
            "get", kinds, "-n", space, "-l", f"app.kubernetes.io/instance={RELEASE}", "-o", "name"
        )
        == ""
    )


def test_an_upgrade_brings_newer_crds(
    installer: Helm, own_cluster: ControlPlane, space: str, older_chart: Path
) -> None:
    """What Helm's own `crds/` folder never does."""
    installer.run("install", RELEASE, str(older_chart), "-n", space)
    assert short_names(own_cluster) == ["olderrun"]
    installer.run("upgrade", RELEASE, str(CHART), "-n", space)
    assert short_names(own_cluster) == ["runinv"]
    uninstall(installer, space)


def test_crds_go_with_the_release_only_if_told_so(
    installer: Helm, own_cluster: ControlPlane, space: str
) -> None:
    installer.run("install", RELEASE, str(CHART), "-n", space)
    installer.run("upgrade", RELEASE, str(CHART), "-n", space, "--set", "crds.install=false")
    assert installed(own_cluster), "what is kept stays when it is left out"
    installer.run("upgrade", RELEASE, str(CHART), "-n", space, "--set", "crds.keep=false")
    uninstall(installer, space)
    await_removal(own_cluster)


def test_crds_of_another_release_are_taken_over_only_if_told_so(
    installer: Helm, own_cluster: ControlPlane, space: str, tmp_path: Path
) -> None:
    installer.run("install", RELEASE, str(CHART), "-n", space)
    install = ("install", "other", str(CHART), "-n", space)
    with pytest.raises(HelmError, match='must equal "other"'):
        installer.run(*install)
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"crds": {"install": False}, "settings": {"historyLimit": 5}}))
    installer.run(*install, "--values", str(values))
    uninstall(installer, space)
    assert installed(own_cluster)
    installer.run(*takeover_of_readme(release="other", namespace=space, values=values))
    assert history_limit(own_cluster, space, f"other-{OPERATOR}") == "5", "the others are as they were"
    uninstall(installer, space, "other")
    with pytest.raises(HelmError, match=f'must equal "{RELEASE}"'):
        installer.run("install", RELEASE, str(CHART), "-n", space)
    installer.run("install", RELEASE, str(CHART), "-n", space, "--take-ownership")
    uninstall(installer, space)


def test_older_crds_of_kubectl_are_taken_over_only_if_told_so(
    installer: Helm, own_cluster: ControlPlane, space: str
) -> None:
    """Helm 4 applies on the server, where what kubectl has written differently is a conflict to be forced."""
    text = "\n---\n".join(path.read_text() for path in MANIFESTS.glob("*.yaml"))
    own_cluster.kubectl("apply", "-f", "-", input=text.replace(*OLDER))
    write_schedule(own_cluster, space)
    install = ("install", RELEASE, str(CHART), "-n", space)
    with pytest.raises(HelmError, match=r'missing key "app\.kubernetes\.io/managed-by"'):
        installer.run(*install)
    installer.run(*install, "--take-ownership", *installer.forcing)
    assert short_names(own_cluster) == ["runinv"]
    assert own_cluster.kubectl("get", "dsched", "-n", space, "-o", "name").split() != []
    uninstall(installer, space)


def test_helm_4_goes_on_with_what_helm_3_has_installed(
    newest_helm: Helm, oldest_helm: Helm, own_cluster: ControlPlane, space: str, older_chart: Path
) -> None:
    three, four = oldest_helm.of(own_cluster.kubeconfig), newest_helm.of(own_cluster.kubeconfig)
    three.run("install", RELEASE, str(older_chart), "-n", space)
    four.run("upgrade", RELEASE, str(CHART), "-n", space)
    assert short_names(own_cluster) == ["runinv"]
    uninstall(four, space)
    three.run("install", RELEASE, str(older_chart), "-n", space)
    uninstall(three, space)
    # The CRDs that were left are Helm 3's, and of another version.
    four.run("install", RELEASE, str(CHART), "-n", space)
    assert short_names(own_cluster) == ["runinv"]
    uninstall(four, space)


def test_the_hook_is_made_by_helm_test_alone(installer: Helm, own_cluster: ControlPlane, space: str) -> None:
    installer.run("install", RELEASE, str(CHART), "-n", space)
    hooks = [each for each in yaml.safe_load_all(installer.run("get", "hooks", RELEASE, "-n", space)) if each]
    assert {each["kind"] for each in hooks} == {"ServiceAccount", "Role", "RoleBinding", "Pod"}
    assert all(map(is_hook, hooks))
    assert own_cluster.kubectl("get", "pods", "-n", space, "-o", "name") == ""
    uninstall(installer, space)


def takeover_of_readme(*, release: str, namespace: str, values: Path) -> list[str]:
    """The arguments of the one command with `--take-ownership` in the chart's README, for this release."""
    (line,) = re.findall(r"^helm (.*--take-ownership.*)$", (CHART / "README.md").read_text(), re.MULTILINE)
    ours = {"OTHER": release, str(CHART.relative_to(ROOT)): str(CHART)}
    ours |= {"astrabox": namespace, "values.yaml": str(values)}
    words = shlex.split(line)
    assert ours.keys() <= set(words), line
    return [ours.get(word, word) for word in words]


def uninstall(helm: Helm, space: str, release: str = RELEASE) -> None:
    helm.run("uninstall", release, "-n", space)


def failure(cluster: ControlPlane, *arguments: str) -> str:
    with pytest.raises(KubectlError) as refusal:
        cluster.kubectl(*arguments)
    return refusal.value.stderr


def history_limit(cluster: ControlPlane, space: str, operator: str = OPERATOR) -> str:
    chosen = '?(@.name=="ASTRABOX_SCHEDULER_OPERATOR_HISTORY_LIMIT")'
    variable = f"{{.spec.template.spec.containers[0].env[{chosen}].value}}"
    return cluster.kubectl("get", "deployment", operator, "-n", space, "-o", f"jsonpath={variable}")


def short_names(cluster: ControlPlane) -> list[str]:
    found: list[str] = json.loads(
        cluster.kubectl("get", "crd", CRDS[1], "-o", "jsonpath={.spec.names.shortNames}")
    )
    return found


def await_removal(cluster: ControlPlane) -> None:
    """CRDs that are being deleted are gone. Raises AssertionError after 60 seconds.

    A CRD that is deleted before its storage is ready stays for minutes: the API server's finalizer fails,
    its second attempt meets the status that its first has written, and then it waits for a change of the CRD
    that nobody makes. So make one.
    """
    deadline = time.monotonic() + 60
    while left := installed(cluster):
        assert time.monotonic() < deadline, f"{left} are still there"
        with suppress(KubectlError):  # gone since
            cluster.kubectl("annotate", "--overwrite", *left, f"tests/touched={secrets.token_hex(4)}")
        time.sleep(0.2)


def installed(cluster: ControlPlane) -> list[str]:
    return cluster.kubectl("get", "crd", *CRDS, "--ignore-not-found", "-o", "name").split()


def write_schedule(cluster: ControlPlane, space: str) -> None:
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", *(f"crd/{name}" for name in CRDS))
    spec = {"deploymentId": "kept", "cron": "0 0 1 1 *", "timeZone": "UTC", "payload": "{}"}
    item = {
        "apiVersion": "scheduler.astrabox.io/v1",
        "kind": "DeploymentSchedule",
        "metadata": {"name": "kept", "namespace": space},
        "spec": spec,
    }
    cluster.kubectl("apply", "-f", "-", input=json.dumps(item))


def test_definitions_that_cannot_be_had_are_told_with_what_to_do(tmp_path: Path) -> None:
    environ = os.environ | {"GOMODCACHE": str(tmp_path), "GOPROXY": "off"}
    with pytest.raises(BuildError, match="check the network, and GOPROXY"):
        ensure_module("monitoring", environ=environ)
