"""The two images of the suite: the operator's, and the stand-in AstraBox with the provider installed.

Their tags are digests of what they are made of: what has not changed is not built again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.controlplane.errors import BuildError
from tools.controlplane.progress import Progress
from tools.controlplane.running import run_with_progress, tail
from tools.generated.paths import ROOT
from tools.node.images import PYTHON, PYTHON_BUILDER, build_image, debian_base, drop_image, image_archive

_SHARED = ("LICENSE", "README.md", "client", "crds", "operator", "provider", "pyproject.toml", "requirements")
"""What both Containerfiles copy."""
_KEPT = 4
_CERTIFICATES = "/certs"


@dataclass(frozen=True)
class Images:
    """Names of the two images, which are on the cluster's nodes."""

    operator: str
    host: str


@dataclass(frozen=True)
class Source:
    """What an image is made of; paths are relative to the root of the tree."""

    name: str
    containerfile: str
    copied: Sequence[str]

    def tag(self, root: Path = ROOT) -> str:
        """`localhost/NAME:DIGEST`; the digest is of the Containerfile and all that it copies."""
        digest = hashlib.sha256()
        for path in sorted(
            {file for name in (self.containerfile, *self.copied) for file in _files(root / name)}
        ):
            digest.update(f"{path.relative_to(root)}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
        return f"localhost/{self.name}:{digest.hexdigest()[:12]}"


OPERATOR = Source("astrabox-scheduler-operator", "Containerfile", _SHARED)
HOST = Source("astrabox-host", "e2e/Containerfile.astrabox", (*_SHARED, "contract"))


def archived(source: Source, environ: Mapping[str, str]) -> Path:
    """Archive of the image for `Node.load_image`, built by buildah if there is none of this tree.

    Raises `ImageError`.
    """
    archive = image_archive(source.tag())
    with (archive.parent / "build.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another run may be building the same
        if archive.exists():
            archive.touch()
        else:
            forget_unused(archive.parent, source.name)
            _build(source, environ)
    return archive


def run_base() -> str:
    """Tag of an image with Python, as `python:3-slim` is one; made if need be. Raises `ImageError`."""
    return debian_base("localhost/astrabox-python:run", PYTHON)


def build_base() -> str:
    """Tag of one that has pip and venv as well; made if need be. Raises `ImageError`."""
    return debian_base("localhost/astrabox-python:build", PYTHON_BUILDER)


def pip_settings(environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """Build arguments and volumes by which pip in a build uses the index and the certificates of ours."""
    arguments = {name: environ[name] for name in ("PIP_INDEX_URL",) if environ.get(name)}
    certificates = environ.get("PIP_CERT")
    if not certificates:
        return arguments, []
    path = Path(certificates)
    return arguments | {"PIP_CERT": f"{_CERTIFICATES}/{path.name}"}, [f"{path.parent}:{_CERTIFICATES}:ro"]


def forget_unused(folder: Path, name: str) -> None:
    """Remove all archives of an image but those that were used last: each is a quarter of a gigabyte.

    Several are kept, since several work trees may share the folder.
    """
    found = sorted(folder.glob(f"localhost_{name}_????????????.tar"), key=lambda path: path.stat().st_mtime)
    for path in found[:-_KEPT]:
        path.unlink(missing_ok=True)


def _build(source: Source, environ: Mapping[str, str]) -> None:
    arguments, volumes = pip_settings(environ)
    build_image(
        ROOT / source.containerfile,
        source.tag(),
        run_base(),
        ROOT,
        arguments={"BUILDER": build_base()} | arguments,
        volumes=volumes,
    )
    drop_image(source.tag())  # tags come and go with the tree, and nothing is built on these


def docker_build_command(source: Source) -> list[str]:
    """What builds the image where there is Docker, on the base that the Containerfile names."""
    return ["docker", "build", "--tag", source.tag(), "--file", source.containerfile, "."]


def docker_build(source: Source) -> str:
    """Build it there, unless it exists; its tag. Raises `BuildError`."""
    progress, environ = Progress(), os.environ | {"DOCKER_BUILDKIT": "1"}
    progress.begin(f"building {source.tag()}")
    code, lines = run_with_progress(
        docker_build_command(source), cwd=ROOT, environ=environ, progress=progress
    )
    if code:
        raise BuildError(
            f"docker build ended with code {code}:\n{tail(lines)}\nCorrect what it complains about."
        )
    progress.end()
    return source.tag()


def check_programs(names: Sequence[str], path: str, advice: str) -> None:
    """Raise `BuildError`, with the advice, if one of these programs is missing."""
    if missing := [name for name in names if shutil.which(name, path=path) is None]:
        raise BuildError(f"{', '.join(missing)} not found: {advice}")


def _files(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
    for each in path.rglob("*") if path.is_dir() else ():
        if each.is_file() and "__pycache__" not in each.parts and each.suffix != ".pyc":
            yield each
