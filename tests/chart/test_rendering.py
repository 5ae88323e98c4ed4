"""What the chart renders, by either Helm."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
import yaml

from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.permissions import OPERATOR_PERMISSIONS, PROVIDER_PERMISSIONS, role_rules
from astrabox_scheduler_operator import firing_check
from astrabox_scheduler_operator.settings import PREFIX, Settings
from tests.chart.helm import (
    ALL_ON,
    NAMESPACE,
    OPERATOR,
    PROVIDER,
    RELEASE,
    Helm,
    HelmError,
    Object,
    is_hook,
    named,
)
from tests.definitions import MANIFESTS
from tools.generated.chart import CHART

pytestmark = pytest.mark.chart

KEPT = {"helm.sh/resource-policy": "keep", "argocd.argoproj.io/sync-options": "Prune=false"}
"""What keeps an object from `helm uninstall`, and from the pruning of Argo CD."""


def test_lint(helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> None:
    values = tmp_path_factory.mktemp("values") / "all.yaml"
    values.write_text(yaml.safe_dump(dict(ALL_ON)))
    helm.run("lint", "--strict", str(CHART))
    helm.run("lint", "--strict", str(CHART), "--values", str(values))


def test_rights_are_those_of_the_code_and_no_more(rendered: list[Object], everything: list[Object]) -> None:
    """IN-06."""
    for objects in (rendered, everything):
        roles = {each["metadata"]["name"]: each for each in objects if each["kind"] == "Role"}
        rules = {name: role["rules"] for name, role in roles.items() if not is_hook(role)}
        assert rules == {
            OPERATOR: role_rules(OPERATOR_PERMISSIONS),
            PROVIDER: role_rules(PROVIDER_PERMISSIONS),
        }
        assert not [each for each in objects if each["kind"] == "ClusterRoleBinding"]
    assert not [each for each in rendered if each["kind"] == "ClusterRole"]


def test_people_get_rights_to_our_kinds_alone_and_an_admin_all_that_he_gives(
    everything: list[Object],
) -> None:
    """IN-06."""
    roles = {each["metadata"]["name"]: each for each in everything if each["kind"] == "ClusterRole"}
    assert roles.keys() == {f"{NAMESPACE}-{RELEASE}-{role}" for role in ("view", "edit", "admin")}
    for role in ("view", "edit"):
        (rule,) = roles[f"{NAMESPACE}-{RELEASE}-{role}"]["rules"]
        assert rule["apiGroups"] == [labels.GROUP]
        assert "*" not in rule["verbs"]
    given = role_rules({*OPERATOR_PERMISSIONS, *PROVIDER_PERMISSIONS})
    assert roles[f"{NAMESPACE}-{RELEASE}-admin"]["rules"] == given


def test_bindings_give_each_role_to_its_accounts(everything: list[Object]) -> None:
    assert subjects(everything, OPERATOR) == [(NAMESPACE, OPERATOR)]
    assert subjects(everything, PROVIDER) == [(NAMESPACE, "astrabox"), ("elsewhere", "worker")]
    assert subjects(everything, f"{RELEASE}-test") == [(NAMESPACE, f"{RELEASE}-test")]


def subjects(objects: list[Object], name: str) -> list[tuple[str, str]]:
    binding = named(objects, "RoleBinding", name)
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    assert binding["roleRef"] == reference
    assert all(each["kind"] == "ServiceAccount" for each in binding["subjects"])
    return [(each["namespace"], each["name"]) for each in binding["subjects"]]


def test_the_test_has_rights_while_it_runs_and_none_of_them_is_a_wildcard(rendered: list[Object]) -> None:
    role = named(rendered, "Role", f"{RELEASE}-test")
    assert role["metadata"]["annotations"]["helm.sh/hook"] == "test"
    assert "hook-succeeded" in role["metadata"]["annotations"]["helm.sh/hook-delete-policy"]
    assert "*" not in json.dumps(role["rules"])


def test_helm_test_shows_the_log_of_the_pod_and_of_nothing_else(rendered: list[Object]) -> None:
    """By the annotation: in Helm 3 the pod of a test that has passed is gone before `--logs` asks for it."""
    hooks = {each["kind"]: each["metadata"]["annotations"] for each in rendered if is_hook(each)}
    shown = {kind: marks.get("helm.sh/hook-output-log-policy") for kind, marks in hooks.items()}
    nothing = dict.fromkeys(("ServiceAccount", "Role", "RoleBinding"))
    assert shown == nothing | {"Pod": "hook-succeeded,hook-failed"}
    assert {marks["helm.sh/hook-delete-policy"] for marks in hooks.values()} == {
        "before-hook-creation,hook-succeeded"
    }


@pytest.mark.parametrize("keep", [True, False])
def test_crds_are_the_generated_ones(helm: Helm, keep: bool) -> None:
    crds = [
        each for each in helm.render({"crds": {"keep": keep}}) if each["kind"] == "CustomResourceDefinition"
    ]
    generated = [yaml.safe_load(path.read_text()) for path in sorted(MANIFESTS.glob("*.yaml"))]
    for crd in crds:
        assert crd["metadata"].pop("annotations", {}) == (KEPT if keep else {})
        assert crd["metadata"].pop("labels")["app.kubernetes.io/managed-by"] == "Helm"
    assert sorted(crds, key=lambda crd: str(crd["metadata"]["name"])) == generated


def pods(objects: list[Object]) -> Iterator[Object]:
    yield named(objects, "Deployment")["spec"]["template"]["spec"]
    yield named(objects, "Pod")["spec"]


def test_pods_are_restricted(everything: list[Object]) -> None:
    for spec in pods(everything):
        assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & spec.keys()
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"memory"} <= container["resources"]["limits"].keys()
        assert "cpu" not in container["resources"]["limits"]


def test_probes_ask_the_port_of_the_settings(helm: Helm) -> None:
    spec = named(helm.render({"settings": {"healthPort": 9000}}), "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert container["ports"] == [{"name": "health", "containerPort": 9000, "protocol": "TCP"}]
    assert environment(container)["HEALTH_PORT"] == "9000"
    for name, path in (("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[name]["httpGet"] == {"path": path, "port": "health"}
    assert "startupProbe" not in container


def test_a_restart_needs_a_minute_of_failures(rendered: list[Object]) -> None:
    """A process that is well says 503 for as long as the API server is away."""
    (container,) = named(rendered, "Deployment")["spec"]["template"]["spec"]["containers"]
    liveness = container["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] >= 60


def test_a_rollout_takes_none_away_before_another_is_there(rendered: list[Object]) -> None:
    strategy = named(rendered, "Deployment")["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert named(rendered, "Deployment")["spec"]["replicas"] == 2


def test_every_setting_has_a_value_and_its_default(rendered: list[Object]) -> None:
    (container,) = named(rendered, "Deployment")["spec"]["template"]["spec"]["containers"]
    fields = Settings.model_fields
    # The pod's own account says these.
    expected = {name.upper() for name in fields} - {"NAMESPACE", "KUBECONFIG", "CONTEXT"}
    assert environment(container) == {name: str(fields[name.lower()].default) for name in expected}


def test_settings_are_read_as_they_were_written(helm: Helm) -> None:
    written = {
        "catchUpWindowSeconds": 3600,
        "historyLimit": 100_000,
        "createConcurrency": 64,
        "logLevel": "DEBUG",
        "logFormat": "text",
        "healthHost": "::",
        "healthPort": 65_535,
    }
    (container,) = named(helm.render({"settings": written}), "Deployment")["spec"]["template"]["spec"][
        "containers"
    ]
    read = Settings.from_environment({PREFIX + name: text for name, text in environment(container).items()})
    assert (read.catch_up_window_seconds, read.history_limit, read.create_concurrency) == (3600, 100_000, 64)
    assert (read.log_level, read.log_format) == ("DEBUG", "text")
    assert (read.health_host, read.health_port) == ("::", 65_535)


def environment(container: Object) -> dict[str, str]:
    """The operator's settings; all are texts, as a container wants them."""
    ours = {each["name"]: each["value"] for each in container["env"] if each["name"].startswith(PREFIX)}
    assert all(isinstance(value, str) for value in ours.values())
    return {name.removeprefix(PREFIX): value for name, value in ours.items()}


def test_what_is_passed_through_arrives(everything: list[Object]) -> None:
    pod = named(everything, "Deployment")["spec"]["template"]
    assert pod["metadata"]["annotations"] == ALL_ON["podAnnotations"]
    assert ALL_ON["podLabels"].items() <= pod["metadata"]["labels"].items()
    for name in ("nodeSelector", "tolerations", "affinity", "priorityClassName", "imagePullSecrets"):
        assert pod["spec"][name] == ALL_ON[name]
    assert ALL_ON["extraEnv"][0] in pod["spec"]["containers"][0]["env"]
    assert named(everything, "Deployment")["metadata"]["annotations"] == ALL_ON["annotations"]
    account = named(everything, "ServiceAccount", OPERATOR)
    assert account["metadata"]["annotations"] == ALL_ON["serviceAccount"]["annotations"]


def test_what_is_passed_to_the_pod_of_the_test_arrives_there_alone(everything: list[Object]) -> None:
    given = ALL_ON["tests"]
    pod = named(everything, "Pod")
    assert given["podAnnotations"].items() <= pod["metadata"]["annotations"].items()
    assert given["podLabels"].items() <= pod["metadata"]["labels"].items()
    assert pod["spec"]["containers"][0]["resources"] == given["resources"]
    for other in (each for each in everything if is_hook(each) and each is not pod):
        assert not given["podAnnotations"].keys() & other["metadata"]["annotations"].keys()
        assert not given["podLabels"].keys() & other["metadata"]["labels"].keys()


def test_network_policy_lets_probes_in_and_the_api_server_out(everything: list[Object]) -> None:
    spec = named(everything, "NetworkPolicy", OPERATOR)["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["ingress"] == [
        {
            "ports": [{"port": "health", "protocol": "TCP"}],
            "from": ALL_ON["networkPolicy"]["ingress"]["from"],
        }
    ]
    api_server, proxy = spec["egress"]
    assert [each["port"] for each in api_server["ports"]] == [443, 6443]
    assert [each["ipBlock"]["cidr"] for each in api_server["to"]] == ["10.96.0.1/32", "fd00::1/128"]
    assert proxy == ALL_ON["networkPolicy"]["egress"]["extra"][0]


def test_in_a_namespace_that_denies_all_the_test_reaches_the_api_server_too(everything: list[Object]) -> None:
    operator = named(everything, "NetworkPolicy", OPERATOR)
    policy = named(everything, "NetworkPolicy", f"{RELEASE}-test")
    assert not is_hook(policy), "it is in force before the pod starts"
    assert policy["spec"]["egress"] == operator["spec"]["egress"]
    assert policy["spec"]["ingress"] == []
    assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
    selector = policy["spec"]["podSelector"]["matchLabels"]
    assert selector.items() <= named(everything, "Pod")["metadata"]["labels"].items()
    pod = named(everything, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert not selector.items() <= pod.items()


def test_network_policy_without_egress_restricts_none(helm: Helm) -> None:
    values = {"networkPolicy": {"enabled": True, "egress": {"enabled": False}}}
    for name in (OPERATOR, f"{RELEASE}-test"):
        spec = named(helm.render(values), "NetworkPolicy", name)["spec"]
        assert spec["policyTypes"] == ["Ingress"]
        assert "egress" not in spec


def test_flow_schema_names_both_sides_and_one_namespace(everything: list[Object]) -> None:
    spec = named(everything, "FlowSchema")["spec"]
    level = named(everything, "PriorityLevelConfiguration")["metadata"]["name"]
    assert spec["priorityLevelConfiguration"] == {"name": level}
    (rule,) = spec["rules"]
    accounts = [
        (each["serviceAccount"]["namespace"], each["serviceAccount"]["name"]) for each in rule["subjects"]
    ]
    assert accounts == [(NAMESPACE, OPERATOR), (NAMESPACE, "astrabox"), ("elsewhere", "worker")]
    (resources,) = rule["resourceRules"]
    assert resources["namespaces"] == [NAMESPACE]
    used = {each.group for each in OPERATOR_PERMISSIONS + PROVIDER_PERMISSIONS}
    assert set(resources["apiGroups"]) == used


def spread_keys(objects: list[Object]) -> list[str]:
    pod = named(objects, "Deployment")["spec"]["template"]["spec"]
    return [each["topologyKey"] for each in pod["topologySpreadConstraints"]]


def test_operators_are_spread_over_nodes_that_have_no_zone(
    rendered: list[Object], everything: list[Object]
) -> None:
    """A node that lacks one of the keys does not count, so by default there is only what every node has."""
    assert spread_keys(rendered) == ["kubernetes.io/hostname"]
    assert spread_keys(everything) == ALL_ON["topologySpread"]["topologyKeys"]


def test_topology_spread_can_be_switched_off(helm: Helm) -> None:
    pod = named(helm.render({"topologySpread": {"enabled": False}}), "Deployment")["spec"]["template"]["spec"]
    assert "topologySpreadConstraints" not in pod


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ({}, "localhost/astrabox-scheduler-operator:0.1.0"),
        ({"repository": "r.example.invalid/o", "tag": "1.2"}, "r.example.invalid/o:1.2"),
        (
            {"repository": "o", "tag": "1.2", "digest": f"sha256:{'0' * 64}"},
            f"o@sha256:{'0' * 64}",
        ),
    ],
)
def test_image(helm: Helm, image: dict[str, str], expected: str) -> None:
    assert {spec["containers"][0]["image"] for spec in pods(helm.render({"image": image}))} == {expected}


def test_the_test_is_a_module_of_the_image(helm: Helm, everything: list[Object]) -> None:
    def command(objects: list[Object]) -> list[str]:
        (container,) = named(objects, "Pod")["spec"]["containers"]
        assert "volumeMounts" not in container
        found: list[str] = container["command"]
        return found

    assert command(helm.render()) == ["python", "-m", firing_check.__name__]
    assert command(everything) == ["python", "-m", firing_check.__name__, "--require-astrabox"]


def test_an_account_made_elsewhere_has_to_be_named(helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"serviceAccount\.name: name the service account"):
        helm.render({"serviceAccount": {"create": False}})
    objects = helm.render({"serviceAccount": {"create": False, "name": "mine"}})
    assert named(objects, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"] == "mine"
    assert subjects(objects, OPERATOR) == [(NAMESPACE, "mine")]


def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmError, match=r"kubeVersion: >=1\.31\.0-0"):
        helm.render({}, "--kube-version", "1.30.9")
