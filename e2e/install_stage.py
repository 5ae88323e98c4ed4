"""What the commands of docs/install.md run on: a clone, programs on the path, a cluster with an AstraBox."""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.hosts import host_manifests
from e2e.images import build_base, pip_settings, run_base
from e2e.install_doc import Block, PageError, names_set
from e2e.release import HOSTS, Release
from tools.controlplane import KubectlError
from tools.generated.paths import ROOT
from tools.helm import Helm
from tools.node import Node
from tools.node.images import (
    build_image,
    buildah_command,
    buildah_configuration,
    drop_with_archives,
    image_archive,
)

NAME: Final = "astrabox-scheduler"
CRDS: Final = ("deploymentschedules.scheduler.astrabox.io", "runinvocations.scheduler.astrabox.io")
OPERATORS: Final = 2
DEPLOYMENT: Final = "nightly-report"
_TREE: Final = hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]
"""Two suites of one machine build and remove images in one folder, and are told apart by this."""
REGISTRY: Final = f"localhost/page-{_TREE}"
"""Images of the page are told from those of the suite by this."""
VERSION, NEXT_VERSION = "0.1.0", "0.2.0"
"""Those that the page installs, and upgrades to."""
BEFORE: Final = f"localhost/astrabox-before-{_TREE}:1"
ASTRABOX_PODS: Final = "app=astrabox"
_WITHOUT_SCHEDULER: Final = """
if [ -n "$ASTRABOX_SCHEDULER_PROVIDER" ]; then exec python -m astrabox.host "$@"; fi
trap 'exit 0' TERM; sleep infinity & wait
"""
_READY: Final = 'test -z "$ASTRABOX_SCHEDULER_PROVIDER" || test -S /run/astrabox/host.sock'


@dataclass
class InstallStage:
    """`shell` runs a block; what it needs of this machine is in `environ` and in `programs`."""

    node: Node
    helm: Helm
    namespace: str
    folder: Path
    environ: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    """What one step has seen and a later one compares."""
    transcript: list[str] = field(default_factory=list)
    """Commands and what they printed, for the report of a failure."""
    version: str = VERSION
    """The one that the clone is at."""
    building_seconds: float = 0.0
    """How long images were built so far."""

    @property
    def clone(self) -> Path:
        """The working copy that the commands run in."""
        return self.folder / "clone"

    @property
    def files(self) -> Path:
        """The reader's own folder."""
        return self.folder / "files"

    @property
    def chart(self) -> Path:
        """The chart of the working copy."""
        return self.clone / "helm" / NAME

    @property
    def release(self) -> Release:
        """The release that the page installs, with the two hosts beside it."""
        return Release(NAME, self.namespace, self.node)

    def shell(self, block: Block, timeout: float, *, both_streams: bool = False) -> str:
        """What its commands print, or "" if it sets names. Raises CommandError, PageError.

        They run as in the reader's shell, but that the first that fails ends them. `timeout` is in seconds.
        With `both_streams` it is all that a terminal shows, else standard output alone.
        """
        if block.sets_names:
            values = own_values(self)
            for name in names_set(block):
                if not values.get(name):
                    raise PageError(f"line {block.line}: the suite has no value for {name}: give it one")
                self.environ[name] = values[name]
            return ""
        merge = "exec 2>&1\n" if both_streams else ""
        script = f"cd {shlex.quote(str(self.clone))}\n{merge}{self._of_this_helm(block.text)}"
        said = self.node.run(
            ["bash", "-euo", "pipefail", "-c", script], environ=self.environ, timeout=timeout
        )
        self.transcript.append(f"$ {block.text}\n{said}")
        return said

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - as in subprocess.run
        """Output of kubectl in the namespace."""
        return self.node.kubectl("-n", self.namespace, *arguments, input=input)

    def get(self, kind: str, name: str) -> dict[str, Any]:
        """One object."""
        found: dict[str, Any] = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def runs(self, phase: str) -> list[dict[str, Any]]:
        """Runs of the page's schedule that are in this phase."""
        chosen = f"spec.deploymentId={DEPLOYMENT},status.phase={phase}"
        try:
            return self.release.objects("runinv", "--field-selector", chosen)
        except KubectlError:  # a definition that was just changed is served anew
            return []

    def check_operators(self) -> None:
        """All are there and of the present kind. Raises AssertionError."""
        status = self.get("deployment", f"{NAME}-operator")["status"]
        assert (status["readyReplicas"], status["updatedReplicas"]) == (OPERATORS, OPERATORS)

    @contextmanager
    def building(self) -> Iterator[None]:
        """Images are built meanwhile: that time is told apart from the time of the tests."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.building_seconds += time.monotonic() - began

    def load_pushed(self) -> None:
        """What was pushed is pulled: the node has no registry to do so."""
        for tag in built_tags(self.version):
            self.node.load_image(image_archive(tag))

    def _of_this_helm(self, text: str) -> str:
        """The page is written for Helm 4, and says what Helm 3 does not know."""
        third = self.helm.major == "3"
        return text.replace(" --force-conflicts", "") if third else text


def built_tags(version: str) -> list[str]:
    """Of both images that the page builds."""
    return [f"{REGISTRY}/{name}:{version}" for name in (f"{NAME}-operator", "astrabox-with-scheduler")]


def own_values(stage: InstallStage) -> dict[str, str]:
    """What a reader on this machine sets the page's names to; RUN is empty until there is one."""
    return {
        "NAMESPACE": stage.namespace,
        "ASTRABOX": "astrabox",
        "SERVICE_ACCOUNT": "astrabox",
        "ASTRABOX_IMAGE": BEFORE,
        "ASTRABOX_PINS": "none",
        "REVISION": "1",
        "ASTRABOX_PODS": ASTRABOX_PODS,
        "ASTRABOX_REPLICAS": str(HOSTS),
        "REGISTRY": REGISTRY,
        "VERSION": stage.version,
        "FILES": str(stage.files),
        "DEPLOYMENT": DEPLOYMENT,
        "RUN": stage.facts.get("run", ""),
    }


def make_stage(
    node: Node, helm: Helm, namespace: str, folder: Path, environ: Mapping[str, str]
) -> InstallStage:
    """A clone of this tree as it is, and the programs that the page uses. Raises ImageError."""
    stage = InstallStage(node, helm, namespace, folder)
    _copy_tracked(stage.clone)
    programs = folder / "bin"
    programs.mkdir()
    (programs / "kubectl").symlink_to(node.kubectl_path)
    (programs / "helm").symlink_to(helm.binary)
    buildah = programs / "buildah"
    buildah.write_text(_buildah_script(environ))
    buildah.chmod(0o755)
    stage.environ |= {"PATH": f"{programs}:{environ['PATH']}"} | helm.variables
    return stage


def deploy_astrabox(stage: InstallStage, environ: Mapping[str, str]) -> None:
    """Two processes of the stand-in AstraBox that have no scheduler yet; their image is the page's base."""
    arguments, volumes = pip_settings(environ)
    containerfile = ROOT / "e2e" / "Containerfile.before"
    with stage.building():
        archive = build_image(containerfile, BEFORE, build_base(), ROOT, arguments=arguments, volumes=volumes)
    stage.node.load_image(archive)
    objects = [_without_scheduler(each) for each in host_manifests("astrabox", BEFORE)]
    stage.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))
    stage.release.rolled_out("astrabox")


def drop_built() -> None:
    """Remove what the page has built from buildah's folder, and the archives. Raises ImageError."""
    drop_with_archives((*built_tags(VERSION), *built_tags(NEXT_VERSION), BEFORE))


def _without_scheduler(item: dict[str, Any]) -> dict[str, Any]:
    """As AstraBox's Deployment is before the page's patch; one run at a time, so that one can be waiting."""
    if item["kind"] == "Deployment":
        pod = item["spec"]["template"]["spec"]
        del pod["terminationGracePeriodSeconds"]
        del pod["serviceAccountName"]
        (container,) = pod["containers"]
        container["command"] = ["sh", "-c", _WITHOUT_SCHEDULER, "astrabox"]
        container["readinessProbe"]["exec"]["command"] = ["sh", "-c", _READY]
        container["env"] = [
            each for each in container["env"] if each["name"] != "ASTRABOX_SCHEDULER_PROVIDER"
        ] + [{"name": "ASTRABOX_SCHEDULER_KUBERNETES_CONCURRENCY", "value": "1"}]
    return item


def _copy_tracked(target: Path) -> None:
    """The files that git knows, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"],  # noqa: S607 - git is where this machine has it
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def _buildah_script(environ: Mapping[str, str]) -> str:
    """A script in the place of buildah: without a registry, and in the folder of the suite.

    Bases are made of Debian packages; what is pushed becomes an archive.
    """
    arguments, volumes = pip_settings(environ)
    given = {"BASE": run_base(), "BUILDER": build_base()} | arguments
    build = ["build", "--isolation=chroot", *(f"--build-arg={name}={value}" for name, value in given.items())]
    build += [f"--volume={each}" for each in volumes]
    tags = (*built_tags(VERSION), *built_tags(NEXT_VERSION))
    archives = "\n".join(f"    {tag}) file={shlex.quote(str(image_archive(tag)))} ;;" for tag in tags)
    return f"""#!/usr/bin/env bash
set -euo pipefail
PATH=${{PATH#*:}}  # without the folder of this script
export CONTAINERS_CONF={shlex.quote(str(buildah_configuration()))}
command=$1; shift
case $command in
  build) exec {shlex.join(buildah_command(*build))} "$@" ;;
  push)
    case $1 in
{archives}
    *) echo "nothing is known of $1" >&2; exit 1 ;;
    esac
    rm -f "$file"
    exec {shlex.join(buildah_command("push", "--quiet"))} "$1" "docker-archive:$file:$1" ;;
  *) exec {shlex.join(buildah_command())} "$command" "$@" ;;
esac
"""
