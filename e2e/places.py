"""Where the suite runs; `chosen_place` is the whole choice.

| E2E_CLUSTER | place |
|---|---|
| unset | the cluster that ASTRABOX_TEST_KUBECONFIG names, or else as `node` |
| `node` | a node of this machine's own, which is made and removed (root; Debian or Ubuntu) |
| `kind` | a kind cluster, which is made and removed (Docker) |

`python -m e2e.places` builds what is missing, and prints how many processes may test side by side, each on a
cluster of its own; 0: there is one cluster, and the tests go one after the other.
"""

from __future__ import annotations

import os
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from e2e.images import HOST, OPERATOR, Images, archived, check_programs, docker_build
from e2e.kind import CONTEXT, KindCommands, run_shown
from tools.controlplane import Cluster, ExternalCluster, ensure_binaries
from tools.controlplane.errors import ContextError
from tools.controlplane.foreground import exit_code
from tools.controlplane.recipe import NODE
from tools.controlplane.sources import external_kubeconfig
from tools.helm import NEWEST, helm_binary
from tools.node import Node
from tools.node.images import pause_image
from tools.node.packages import check_machine

CLUSTER_VARIABLE, HELM_VARIABLE = "E2E_CLUSTER", "E2E_HELM"
IMAGE_VARIABLE, HOST_IMAGE_VARIABLE = "E2E_IMAGE", "E2E_HOST_IMAGE"
_WANTED_BY_PAGE = "the commands of docs/install.md need it. On Debian and Ubuntu: apt-get install git jq"
_WANTED_BY_KIND = (
    "install it, or leave CLUSTER=kind out to use a node of this machine's own (root, Debian or Ubuntu)."
)


class Place(ABC):
    """One of them, not made yet."""

    side_by_side = 0
    """How many of it there can be, one for each process of the tests; 0 where there is just one."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ

    @abstractmethod
    def prepare(self) -> None:
        """Build what is missing, which may take minutes. Raises `ControlPlaneError` with what to do."""

    @abstractmethod
    @contextmanager
    def open(self) -> Iterator[Cluster]:
        """The cluster, from its start to its end."""

    @abstractmethod
    def images(self, cluster: Cluster) -> Images:
        """Bring both images to the nodes of the cluster, if need be."""


class OwnNode(Place):
    """A node of this machine's own. Tests mostly wait for minutes to begin: three fit on two cores."""

    side_by_side = 3

    def prepare(self) -> None:
        """Programs and images."""
        check_machine()
        check_programs(("git", "jq"), self.environ.get("PATH", ""), _WANTED_BY_PAGE)
        ensure_binaries()
        ensure_binaries(NODE)
        pause_image()
        for source in (OPERATOR, HOST):
            archived(source, self.environ)

    @contextmanager
    def open(self) -> Iterator[Cluster]:
        """In namespaces that end with this process."""
        with Node() as node:
            yield node

    def images(self, cluster: Cluster) -> Images:
        """Imported from their archives."""
        assert isinstance(cluster, Node)
        for source in (OPERATOR, HOST):
            cluster.load_image(archived(source, self.environ))
        return Images(OPERATOR.tag(), HOST.tag())


class Kind(Place):
    """A cluster of kind; a Docker container is its node."""

    def prepare(self) -> None:
        """Images, in Docker."""
        check_programs(("docker", "kind"), self.environ.get("PATH", ""), _WANTED_BY_KIND)
        for source in (OPERATOR, HOST):
            docker_build(source)

    @contextmanager
    def open(self) -> Iterator[Cluster]:
        """Its kubeconfig is a file of ours, so that the user's own does not change."""
        with tempfile.TemporaryDirectory(prefix="astrabox-kind-") as folder:
            commands = KindCommands(Path(folder) / "kubeconfig")
            run_shown(commands.create())
            try:
                with ExternalCluster(commands.kubeconfig, CONTEXT, self.environ) as cluster:
                    yield cluster
            finally:
                run_shown(commands.delete())

    def images(self, cluster: Cluster) -> Images:
        """Copied from Docker into the node."""
        made = Images(OPERATOR.tag(), HOST.tag())
        run_shown(KindCommands(cluster.kubeconfig).load(made.operator, made.host))
        return made


class Given(Place):
    """A cluster that the user brought, with images that its nodes can pull."""

    def prepare(self) -> None:
        """Look whether the images were named."""
        if missing := [name for name in (IMAGE_VARIABLE, HOST_IMAGE_VARIABLE) if not self.environ.get(name)]:
            raise ContextError(
                f"{' and '.join(missing)} not set: build {OPERATOR.containerfile} and {HOST.containerfile}, "
                "push both where the nodes of your cluster can pull from, and name them there."
            )

    @contextmanager
    def open(self) -> Iterator[Cluster]:
        """Only if its context may be written to, and it does not have our resources yet."""
        found = external_kubeconfig(self.environ)
        assert found is not None
        with ExternalCluster(*found, self.environ) as cluster:
            if cluster.kubectl("get", "crd", "-o", "name", "-l", "app.kubernetes.io/part-of=astrabox"):
                raise ContextError(
                    f"the cluster of context {cluster.context} has the definitions of AstraBox: they and "
                    "all schedules would be deleted. Choose another cluster, or remove them first."
                )
            yield cluster

    def images(self, cluster: Cluster) -> Images:  # noqa: ARG002 - the others need it
        """As they were named."""
        return Images(self.environ[IMAGE_VARIABLE], self.environ[HOST_IMAGE_VARIABLE])


def chosen_place(environ: Mapping[str, str] | None = None) -> Place:
    """What the environment asks for. Raises `ContextError` with what may be asked for."""
    environ = os.environ if environ is None else environ
    match environ.get(CLUSTER_VARIABLE, ""):
        case "":
            return OwnNode(environ) if external_kubeconfig(environ) is None else Given(environ)
        case "node":
            return OwnNode(environ)
        case "kind":
            return Kind(environ)
        case other:
            raise ContextError(
                f"CLUSTER={other} is not known. Write `node` or `kind`, or leave it out and set "
                "ASTRABOX_TEST_KUBECONFIG to use a cluster of yours."
            )


def helm_version(environ: Mapping[str, str] | None = None) -> str:
    """Major version of Helm that the environment asks for."""
    environ = os.environ if environ is None else environ
    return environ.get(HELM_VARIABLE) or NEWEST


def main() -> int:
    """Prepare what was chosen, before processes ask for it side by side."""
    place = chosen_place()
    place.prepare()
    helm_binary(helm_version())
    sys.stdout.write(f"{place.side_by_side}\n")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
