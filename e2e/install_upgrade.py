"""The page's upgrade: a clone of the next version, both images built again from it, there and back."""

from __future__ import annotations

import re
import shutil
from typing import Final

import yaml

from e2e.install_doc import page_blocks
from e2e.install_stage import CRDS, NAME, NEXT_VERSION, VERSION, InstallStage
from tools.generated.paths import ROOT

BUILDS: Final = ("build-operator", "build-wheel", "build-astrabox", "push-images")
"""Blocks of the page that the upgrade sends its reader back to."""
BUILD_SECONDS: Final = 900.0
_CATEGORIES: Final = "    categories:\n    - astrabox\n"
_REVISIONS: Final = 2
"""Of the release, when it has been upgraded once."""
_PROVIDER: Final = "from importlib.metadata import version; print(version('astrabox-scheduler-kubernetes'))"


def make_older(stage: InstallStage) -> None:
    """The chart in the clone is an older one: the upgrade comes later."""
    crd = stage.chart / "templates" / "crds" / "runinvocations.yaml"
    text = crd.read_text()
    assert text.count(_CATEGORIES) == 1
    crd.write_text(text.replace(_CATEGORIES, ""))


def bring_to_next(stage: InstallStage) -> None:
    """The clone is brought to the new version."""
    assert "categories" not in stage.get("crd", CRDS[1])["spec"]["names"]
    stage.facts["before upgrade"] = {each["metadata"]["name"] for each in stage.runs("Succeeded")}
    stage.version = NEXT_VERSION
    shutil.rmtree(stage.chart)
    shutil.copytree(ROOT / "helm" / NAME, stage.chart)
    about = yaml.safe_load((stage.chart / "Chart.yaml").read_text())
    about |= {"version": NEXT_VERSION, "appVersion": NEXT_VERSION}
    (stage.chart / "Chart.yaml").write_text(yaml.safe_dump(about))
    project = stage.clone / "pyproject.toml"
    text, line = project.read_text(), f'\nversion = "{VERSION}"\n'
    assert text.count(line) == 1
    project.write_text(text.replace(line, f'\nversion = "{NEXT_VERSION}"\n'))


def build_again(stage: InstallStage, _: str) -> None:
    """The commands that have built both images build those of the new version, in the folders as they are."""
    page = {block.name: block for block in page_blocks()}
    for name in BUILDS:
        with stage.building():
            stage.shell(page[name], BUILD_SECONDS)
    stage.load_pushed()


def check_upgraded(stage: InstallStage, said: str) -> None:
    """The CRDs and the operators are the new ones, and the objects those of before."""
    assert len(re.findall(r"^[0-9]+\s", said, re.MULTILINE)) == _REVISIONS, said
    _check_release(stage, NEXT_VERSION, ["astrabox"])


def check_rolled_out(stage: InstallStage, _: str) -> None:
    """AstraBox has the new provider, in both processes."""
    assert _providers(stage) == {NEXT_VERSION}


def check_undone(stage: InstallStage, _: str) -> None:
    """It has the older one again."""
    assert _providers(stage) == {VERSION}


def check_rolled_back(stage: InstallStage, _: str) -> None:
    """So have the CRDs and the operators; then the reader upgrades again, and goes on with that."""
    _check_release(stage, VERSION, None)
    flags = ("-n", stage.namespace, "-f", str(stage.files / "values.yaml"), "--wait")
    stage.helm("upgrade", NAME, str(stage.chart), *flags)
    _check_release(stage, NEXT_VERSION, ["astrabox"])


def _check_release(stage: InstallStage, version: str, categories: list[str] | None) -> None:
    """Which CRDs and operators there are, and that no object has gone with the others."""
    assert stage.get("crd", CRDS[1])["spec"]["names"].get("categories") == categories
    there = {each["metadata"]["name"] for each in stage.runs("Succeeded")}
    assert stage.facts["before upgrade"] <= there
    stage.check_operators()
    command = ("python", "-m", "astrabox_scheduler_operator", "--version")
    assert version in stage.kubectl("exec", f"deploy/{NAME}-operator", "--", *command)


def _providers(stage: InstallStage) -> set[str]:
    """Versions of the provider in AstraBox's processes."""
    hosts = (host.name for host in stage.release.hosts)
    return {stage.kubectl("exec", name, "--", "python", "-c", _PROVIDER).strip() for name in hosts}
