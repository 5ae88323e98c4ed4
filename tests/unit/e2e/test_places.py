"""Where the suite runs is decided by the environment alone."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from e2e import places
from e2e.images import Images
from e2e.kind import CONFIGURATION, CONTEXT, NAME, KindCommands
from e2e.places import Given, Kind, OwnNode, chosen_place, helm_version
from tools.controlplane.errors import ContextError, StartError
from tools.controlplane.sources import DEFAULT_CONTEXTS
from tools.generated.chart import CHART


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    path = tmp_path / "config"
    path.write_text("current-context: kind-astrabox\n")
    return path


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({}, OwnNode),
        ({"E2E_CLUSTER": ""}, OwnNode),
        ({"E2E_CLUSTER": "node"}, OwnNode),
        ({"E2E_CLUSTER": "kind"}, Kind),
    ],
)
def test_the_choice(environ: Mapping[str, str], place: type) -> None:
    assert type(chosen_place(environ)) is place


def test_a_cluster_of_the_users_is_taken_unless_another_is_asked_for(kubeconfig: Path) -> None:
    given = {"ASTRABOX_TEST_KUBECONFIG": str(kubeconfig)}
    assert isinstance(chosen_place(given), Given)
    assert isinstance(chosen_place(given | {"E2E_CLUSTER": "node"}), OwnNode)
    kubeconfig.write_text("current-context: production\n")
    with pytest.raises(ContextError, match="only these are accepted"):
        chosen_place(given)


def test_another_name_is_refused_with_what_may_be_written() -> None:
    with pytest.raises(ContextError, match=r"CLUSTER=minikube is not known\. Write `node` or `kind`"):
        chosen_place({"E2E_CLUSTER": "minikube"})


def test_only_nodes_of_this_machine_are_several_side_by_side() -> None:
    assert [place({}).side_by_side > 1 for place in (OwnNode, Kind, Given)] == [True, False, False]


def test_helm_is_the_newest_unless_another_is_asked_for() -> None:
    assert helm_version({}) == helm_version({"E2E_HELM": ""}) == "4"
    assert helm_version({"E2E_HELM": "3"}) == "3"


def test_a_cluster_of_the_users_needs_images_by_name() -> None:
    with pytest.raises(ContextError, match="E2E_IMAGE and E2E_HOST_IMAGE not set: build Containerfile and"):
        Given({}).prepare()
    with pytest.raises(ContextError, match=r"^E2E_HOST_IMAGE not set"):
        Given({"E2E_IMAGE": "r.invalid/operator:1"}).prepare()
    Given({"E2E_IMAGE": "r.invalid/operator:1", "E2E_HOST_IMAGE": "r.invalid/host:1"}).prepare()


class Recorded:
    """In place of running kind: what would be run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, failing: str = "") -> None:
        self.commands: list[list[str]] = []
        self._failing = failing
        monkeypatch.setattr(places, "run_shown", self.run)
        monkeypatch.setattr(places, "ExternalCluster", self.cluster)

    def run(self, command: Sequence[str]) -> None:
        self.commands.append(list(command))
        if command[1] == self._failing:
            raise StartError("it says why")

    @contextmanager
    def cluster(self, kubeconfig: Path, context: str, _: Mapping[str, str]) -> Iterator[KindCommands]:
        assert context == CONTEXT
        yield KindCommands(kubeconfig)


def test_a_kind_cluster_is_made_loaded_and_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    place = Kind({})
    with place.open() as cluster:
        made = place.images(cluster)
    assert isinstance(made, Images)
    create, load, delete = recorded.commands
    kubeconfig = f"--kubeconfig={cluster.kubeconfig}"
    assert create == ["kind", "create", "cluster", f"--config={CONFIGURATION}", kubeconfig, "--wait=120s"]
    assert load == ["kind", "load", "docker-image", "--name=astrabox", made.operator, made.host]
    assert delete == ["kind", "delete", "cluster", "--name=astrabox", kubeconfig]


def test_a_kind_cluster_that_was_there_before_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch, failing="create")
    with pytest.raises(StartError, match="it says why"), Kind({}).open():
        pass
    assert [command[1] for command in recorded.commands] == ["create"]


def test_a_kind_cluster_is_removed_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded = Recorded(monkeypatch)
    with pytest.raises(KeyError), Kind({}).open():
        raise KeyError
    assert [command[1] for command in recorded.commands] == ["create", "delete"]


def test_the_kind_cluster_is_of_the_oldest_kubernetes_that_the_chart_is_for() -> None:
    (node,) = yaml.safe_load(CONFIGURATION.read_text())["nodes"]
    image = re.fullmatch(r"kindest/node:v(\d+\.\d+)\.\d+@sha256:[0-9a-f]{64}", node["image"])
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert image is not None
    assert chart["kubeVersion"] == f">={image[1]}.0-0"


def test_the_kind_cluster_has_the_name_that_tests_may_write_to() -> None:
    assert yaml.safe_load(CONFIGURATION.read_text())["name"] == NAME
    assert CONTEXT in DEFAULT_CONTEXTS
