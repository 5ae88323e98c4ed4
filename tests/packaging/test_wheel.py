"""The built wheel, as a user installs it: per extra, in a bare environment."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "astrabox_scheduler_client",
    "astrabox_scheduler_crds",
    "astrabox_scheduler_kubernetes",
    "astrabox_scheduler_operator",
}
ASTRABOX_PINS = {
    "pydantic": "2.13.5",
    "httpx": "0.28.1",
    "tenacity": "9.1.4",
    "prometheus-client": "0.26.0",
    "pytest": "9.1.1",
    "pytest-asyncio": "1.4.0",
}

pytestmark = pytest.mark.timeout(300)  # the first run fetches packages


def uv(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "uv", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    uv(
        "build",
        "--wheel",
        "--no-build-isolation",
        "--python",
        sys.executable,
        "--out-dir",
        str(out),
        str(ROOT),
    )
    (built,) = out.glob("*.whl")
    return built


Environment = Callable[..., Path]


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    """Makes an environment with these requirements; the path of its Python."""

    def make(*requirements: str, python: str = sys.executable) -> Path:
        uv("venv", "--quiet", "--python", python, str(tmp_path / "env"))
        interpreter = tmp_path / "env" / "bin" / "python"
        uv("pip", "install", "--quiet", "--python", str(interpreter), *requirements)
        return interpreter

    return make


def output(python: Path, code: str) -> str:
    done = subprocess.run(
        [python, "-I", "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        check=False,
        cwd=python.parent,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def python_3_12() -> str | None:
    """An interpreter of AstraBox's version: on the path, or one that pyenv has."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for candidate in ("python3.12", *map(str, sorted(pyenv.glob("versions/3.12.*/bin/python")))):
        # A name on the path may be a shim for a version that is not there.
        done = subprocess.run(
            ["/usr/bin/env", candidate, "-c", "import sys; print(sys.executable)"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode == 0:
            return done.stdout.strip()
    return None


ENTRY_POINT = """
from importlib.metadata import entry_points
(entry,) = entry_points(group="astrabox.providers.scheduler")
print(entry.name, entry.value)
"""
DISTRIBUTIONS = """
import json, importlib.metadata as m
found = {each.metadata["Name"].lower().replace("_", "-"): each.version for each in m.distributions()}
print(json.dumps(found))
"""


def test_the_wheel_holds_our_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES
    assert not [name for name in names if "test" in name.lower()]
    for package in PACKAGES:
        assert f"{package}/py.typed" in names


def test_base_has_the_entry_point_and_no_kopf(wheel: Path, environment: Environment) -> None:
    python = environment(str(wheel))
    assert output(python, ENTRY_POINT) == (
        "kubernetes astrabox_scheduler_kubernetes:KubernetesSchedulerProvider"
    )
    installed = json.loads(output(python, DISTRIBUTIONS))
    assert "kopf" not in installed
    assert "astrabox" not in installed
    found = output(python, "import importlib.util as u; print(u.find_spec('astrabox'), u.find_spec('kopf'))")
    assert found == "None None"
    output(python, "import astrabox_scheduler_crds.crd, astrabox_scheduler_client.api")


def test_base_loads_through_the_entry_point_where_astrabox_is(wheel: Path, environment: Environment) -> None:
    python = environment(str(wheel), str(ROOT / "contract"))
    code = "from importlib.metadata import entry_points as e;"
    code += "(p,) = e(group='astrabox.providers.scheduler'); c = p.load(); print(c().name)"
    assert output(python, code) == "kubernetes"


def test_the_operator_extra_runs(wheel: Path, environment: Environment) -> None:
    python = environment(f"{wheel}[operator]")
    assert json.loads(output(python, DISTRIBUTIONS))["kopf"]
    done = subprocess.run(
        [python, "-I", "-m", "astrabox_scheduler_operator", "--version"],
        capture_output=True, text=True, check=True, cwd=python.parent,
    )  # fmt: skip
    assert wheel.name.split("-")[1] in done.stdout


def test_base_installs_beside_what_astrabox_pins(wheel: Path, tmp_path: Path) -> None:
    """On Python 3.12, AstraBox's own; packages are unpacked for it also where it is not on the machine."""
    target = tmp_path / "site"
    pins = [f"{name}=={version}" for name, version in ASTRABOX_PINS.items()]
    uv(
        "pip", "install", "--quiet", "--python-version", "3.12", "--only-binary", ":all:",
        "--target", str(target), str(wheel), *pins,
    )  # fmt: skip
    found = {path.name for path in target.glob("*.dist-info")}
    for name, version in ASTRABOX_PINS.items():
        assert f"{name.replace('-', '_')}-{version}.dist-info" in found


def test_base_works_on_astraboxs_python_with_its_pins(wheel: Path, environment: Environment) -> None:
    newer = python_3_12()
    if newer is None:
        pytest.skip("no Python 3.12 on this machine; the test above unpacks the packages for it all the same")
    pins = [f"{name}=={version}" for name, version in ASTRABOX_PINS.items()]
    python = environment(str(wheel), str(ROOT / "contract"), *pins, python=newer)
    installed = json.loads(output(python, DISTRIBUTIONS))
    assert {name: installed[name] for name in ASTRABOX_PINS} == ASTRABOX_PINS
    assert output(
        python, "import astrabox_scheduler_kubernetes as k; print(k.KubernetesSchedulerProvider.name)"
    ) == ("kubernetes")


def test_what_the_provider_adds_leaves_alone_what_astrabox_pins(
    wheel: Path, environment: Environment
) -> None:
    """The way of docs/install.md into AstraBox's image: the lock and the wheel, each without dependencies."""
    pins = [f"{name}=={version}" for name, version in ASTRABOX_PINS.items()]
    python = environment(*pins)
    before = json.loads(output(python, DISTRIBUTIONS))
    install = ("pip", "install", "--quiet", "--python", str(python), "--no-deps")
    uv(*install, "--require-hashes", "--requirement", str(ROOT / "requirements" / "astrabox.lock"))
    uv(*install, str(wheel))
    uv("pip", "check", "--python", str(python))
    after = json.loads(output(python, DISTRIBUTIONS))
    assert {name: after[name] for name in ASTRABOX_PINS} == ASTRABOX_PINS
    assert "kopf" not in after
    assert before.keys() < after.keys()
    output(python, "import astrabox_scheduler_client.api")
