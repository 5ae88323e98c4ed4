"""What the commands of docs/install.md run on: a clone, programs on the path, a cluster with an AstraBox."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from e2e.helm import Helm
from e2e.hosts import host_manifests
from e2e.images import pip_settings
from e2e.install_doc import Block, PageError, names_set
from e2e.release import Release
from tools.generated.paths import ROOT
from tools.node import Node
from tools.node.images import (
    PYTHON,
    PYTHON_BUILDER,
    build_image,
    buildah_command,
    debian_base,
    drop_image,
    image_archive,
)

NAME: Final = "astrabox-scheduler"
DEPLOYMENT: Final = "nightly-report"
REGISTRY, VERSION = "localhost/page", "0.1.0"
"""Images of the page are told from those of the suite by this."""
BUILT: Final = tuple(
    f"{REGISTRY}/{name}:{VERSION}" for name in (f"{NAME}-operator", "astrabox-with-scheduler")
)
BEFORE: Final = "localhost/astrabox-before:1"
ASTRABOX_PODS: Final = "app=astrabox"
_BASE, _BUILDER = "localhost/astrabox-python:run", "localhost/astrabox-python:build"
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

    @property
    def clone(self) -> Path:
        """The working copy that the commands run in."""
        return self.folder / "clone"

    @property
    def chart(self) -> Path:
        """The chart of the working copy."""
        return self.clone / "helm" / NAME

    @property
    def release(self) -> Release:
        """The release that the page installs, with the two hosts beside it."""
        return Release(NAME, self.namespace, self.node)

    def shell(self, block: Block, timeout: float) -> str:
        """What its commands print, or "" if it sets names. Raises CommandError, PageError.

        They run as in the reader's shell, but that the first that fails ends them.
        """
        if block.sets_names:
            values = own_values(self.namespace, self.facts.get("run", ""))
            for name in names_set(block):
                if not values.get(name):
                    raise PageError(f"line {block.line}: the suite has no value for {name}: give it one")
                self.environ[name] = values[name]
            return ""
        script = f"cd {shlex.quote(str(self.clone))}\n{self._of_this_helm(block.text)}"
        said = self.node.run(
            ["bash", "-euo", "pipefail", "-c", script], environ=self.environ, timeout=timeout
        )
        self.transcript.append(f"$ {block.text}\n{said}")
        return said

    def kubectl(self, *arguments: str, input: str | None = None) -> str:  # noqa: A002 - as in subprocess.run
        """Output of kubectl in the namespace."""
        return self.node.kubectl("-n", self.namespace, *arguments, input=input)

    def load_pushed(self) -> None:
        """What was pushed is pulled: the node has no registry to do so."""
        for tag in BUILT:
            self.node.load_image(image_archive(tag))

    def _of_this_helm(self, text: str) -> str:
        """The page is written for Helm 4, and says what Helm 3 does not know."""
        third = self.helm("version", "--short").startswith("v3")
        return text.replace(" --force-conflicts", "") if third else text


def own_values(namespace: str, run: str) -> dict[str, str]:
    """What a reader on this machine sets the page's names to; `run` is the name of a run that has ended."""
    return {
        "NAMESPACE": namespace,
        "ASTRABOX": "astrabox",
        "SERVICE_ACCOUNT": "astrabox",
        "ASTRABOX_IMAGE": BEFORE,
        "ASTRABOX_PODS": ASTRABOX_PODS,
        "REGISTRY": REGISTRY,
        "VERSION": VERSION,
        "DEPLOYMENT": DEPLOYMENT,
        "RUN": run,
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
    stage.environ |= {"PATH": f"{programs}:{environ['PATH']}"}
    stage.environ |= {f"HELM_{each}_HOME": str(helm.home / each) for each in ("CACHE", "CONFIG", "DATA")}
    return stage


def deploy_astrabox(stage: InstallStage, environ: Mapping[str, str]) -> None:
    """Two processes of the stand-in AstraBox that have no scheduler yet; their image is the page's base."""
    arguments, volumes = pip_settings(environ)
    base = debian_base(_BUILDER, PYTHON_BUILDER)
    archive = build_image(
        ROOT / "e2e" / "Containerfile.before", BEFORE, base, ROOT, arguments=arguments, volumes=volumes
    )
    stage.node.load_image(archive)
    objects = [_without_scheduler(each) for each in host_manifests("astrabox", BEFORE)]
    stage.kubectl("apply", "-f", "-", input=yaml.safe_dump_all(objects))
    stage.release.rolled_out("astrabox")


def drop_built() -> None:
    """Remove what the page has built from buildah's folder, and the archives."""
    for tag in (*BUILT, BEFORE):
        archive = image_archive(tag)
        if archive.exists():
            drop_image(tag)
            archive.unlink()


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
    base, builder = debian_base(_BASE, PYTHON), debian_base(_BUILDER, PYTHON_BUILDER)
    arguments, volumes = pip_settings(environ)
    given = {"BASE": base, "BUILDER": builder} | arguments
    build = ["build", "--isolation=chroot", *(f"--build-arg={name}={value}" for name, value in given.items())]
    build += [f"--volume={each}" for each in volumes]
    archives = "\n".join(f"    {tag}) file={shlex.quote(str(image_archive(tag)))} ;;" for tag in BUILT)
    return f"""#!/usr/bin/env bash
set -euo pipefail
PATH=${{PATH#*:}}  # without the folder of this script
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
