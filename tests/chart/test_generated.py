"""What the chart's generators refuse, and that the versions belong together."""

from __future__ import annotations

import re
import tomllib

import pytest
import yaml

from tools.generated.chart import CHART, crd_template
from tools.generated.chart_readme import described
from tools.generated.locks import entries
from tools.generated.manifests import definitions
from tools.generated.paths import ROOT


def test_values_are_described_by_the_comments_above_them() -> None:
    text = (
        "# Not about a value.\n\na:\n  # -- First\n  # and second line.\n  b: 1\n"
        "# -- A whole.\nc:\n  d: [1]\n"
    )
    found = [(value.path, value.default, value.meaning) for value in described(text)]
    assert found == [(("a", "b"), 1, "First and second line."), (("c",), {"d": [1]}, "A whole.")]


@pytest.mark.parametrize("text", ["a: 1\n", "a:\n  # -- B.\n  b: 1\n  c: 2\n", "# -- A.\n\na: 1\n"])
def test_a_value_without_description_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write a `# --` comment above a"):
        described(text)


def test_a_definition_that_helm_would_evaluate_is_refused() -> None:
    crd = {"metadata": {"name": "x"}, "spec": {"description": "{{ .Values }}"}}
    with pytest.raises(ValueError, match="Helm would evaluate"):
        crd_template("x", crd)
    with pytest.raises(ValueError, match=r"no plain metadata\.name"):
        crd_template("x", {"metadata": {"labels": {}, "name": "x"}})


def test_a_crd_template_is_the_definition_but_for_its_lines() -> None:
    for plural, crd in definitions().items():
        lines = crd_template(plural, crd).splitlines()
        left = [line for line in lines if "{{" not in line and "component: crds" not in line]
        kept = "    helm.sh/resource-policy: keep\n    argocd.argoproj.io/sync-options: Prune=false\n"
        plain = re.sub(f"  labels:\n|  annotations:\n{kept}", "", "\n".join(left))
        assert yaml.safe_load(plain) == crd


def test_the_locks_of_the_images_are_parts_of_the_lock_of_the_tests() -> None:
    tested = entries((ROOT / "requirements" / "dev.lock").read_text())
    for name, needed in (("operator", "kopf"), ("provider", "aiohttp"), ("build", "hatchling")):
        lock = entries((ROOT / "requirements" / f"{name}.lock").read_text())
        assert needed in lock
        assert lock.items() <= tested.items()
        assert "pytest" not in lock
        assert all("--hash=sha256:" in text for text in lock.values())


def test_versions_of_package_chart_and_image_belong_together() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == version
    assert f"ARG VERSION={version}\n" in (ROOT / "Containerfile").read_text()


def test_every_folder_of_the_wheel_is_copied_into_the_image() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = {path.split("/")[0] for path in wheel["packages"]}
    container = (ROOT / "Containerfile").read_text()
    copied = set(re.findall(r"^COPY (\w+) \w+$", container, re.MULTILINE))
    assert copied == folders
    let_in = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{folder}" for folder in folders} <= set(let_in)
    assert not re.search(r"^FROM \S*[.:]\d*/", container, re.MULTILINE), "names a registry"


def test_the_image_runs_as_a_number() -> None:
    """Restricted pod security takes only a user that it can tell from root."""
    container = (ROOT / "Containerfile").read_text()
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", container, re.MULTILINE)
