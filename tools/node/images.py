"""Makes container images without a registry: from Debian packages and busybox, by buildah.

mmdebstrap was the least trouble of the ways to a Debian root: one command from the package sources of this
machine to one tar file, nothing mounted and nothing left. buildah keeps to a folder of its own in the cache,
copies instead of mounting (vfs) and runs commands in a chroot, so it needs neither overlay nor namespaces.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tools.controlplane.progress import Progress
from tools.controlplane.running import run_with_progress, tail
from tools.controlplane.sources import cache_root
from tools.node.components import PAUSE_IMAGE
from tools.node.errors import ImageError
from tools.node.packages import SEARCH

PYTHON = ("python3", "ca-certificates")
"""Packages of an image to run Python programs in, as `python:3-slim` is one."""
PYTHON_BUILDER = (*PYTHON, "python3-venv")
"""Packages of an image to make virtual environments in."""

_EXCLUDED = ("/usr/share/doc/*", "/usr/share/info/*", "/usr/share/locale/*", "/usr/share/man/*")
_SOURCES = ("sources.list.d/debian.sources", "sources.list.d/ubuntu.sources", "sources.list")
_REVISION = 1  # raise it when the recipes below change what comes out
_PAUSE = 'FROM scratch\nCOPY busybox /bin/busybox\nENTRYPOINT ["/bin/busybox", "sleep", "infinity"]\n'
_BUSYBOX = """FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
CMD ["sh"]
"""
_DEBIAN = 'FROM scratch\nADD root.tar /\nENV LANG=C.UTF-8\nCMD ["python3"]\n'


def build_image(
    containerfile: Path,
    tag: str,
    base: str,
    context: Path,
    *,
    arguments: Mapping[str, str] | None = None,
    volumes: Sequence[str] = (),
    progress: Progress | None = None,
) -> Path:
    """Build an image; the path of a docker-archive that `Node.load_image` takes, in the cache.

    `base` becomes the build argument BASE, which the Containerfile has to declare. `arguments` are further
    ones, `volumes` (`/from:/to:ro`) are mounted while commands run. Raises `ImageError`.
    """
    if not re.search(r"^ARG BASE\b", containerfile.read_text(), re.MULTILINE):
        raise ImageError(f"{containerfile} has no line `ARG BASE`; declare it and write FROM ${{BASE}}.")
    given = {"BASE": base} | dict(arguments or {})
    flags = [f"--build-arg={name}={value}" for name, value in given.items()]
    flags += [f"--volume={volume}" for volume in volumes]
    with _shown(progress, f"building {tag}") as shown:
        _build(tag, containerfile, context, flags, shown)
        return _archive(tag, shown)


def debian_base(tag: str, packages: Sequence[str] = PYTHON, *, progress: Progress | None = None) -> str:
    """Make an image of Debian packages under this tag, or give it to the cached one; the tag.

    It is cached by its list of packages and the release of this machine, whose package sources are used.
    """
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "stable")
    kept = f"localhost/astrabox-debian:{base_key(packages, release)}"
    with _shown(progress, f"making a base image of {', '.join(packages)}") as shown:
        if not _exists(kept):
            with tempfile.TemporaryDirectory(prefix="astrabox-base-") as scratch:
                _bootstrap(Path(scratch) / "root.tar", release, packages, shown)
                _build(kept, _written(scratch, _DEBIAN), Path(scratch), (), shown)
        _run(buildah_command("tag", kept, tag), shown)
    return tag


def pause_image(*, progress: Progress | None = None) -> Path:
    """Archive of the image that holds the namespaces of a pod; made once for each busybox."""
    return _of_busybox(PAUSE_IMAGE, _PAUSE, progress)


def busybox_image(tag: str, *, progress: Progress | None = None) -> Path:
    """Archive of an image with a shell and the usual commands; made once for each busybox."""
    return _of_busybox(tag, _BUSYBOX, progress)


def base_key(packages: Sequence[str], release: str) -> str:
    """Part of the name under which a base image is kept."""
    listed = " ".join((str(_REVISION), release, platform.machine(), *sorted(packages)))
    return hashlib.sha256(listed.encode()).hexdigest()[:16]


def drop_image(tag: str) -> None:
    """Remove an image from buildah's folder; its archive stays."""
    _run(buildah_command("rmi", tag), Progress())


def drop_with_archives(tags: Iterable[str]) -> None:
    """Remove images and their archives, those that are there, and images that have lost their name.

    Each is tried, whatever became of the others. Raises `ImageError` with all complaints.
    """
    complaints = []
    for tag in tags:
        image_archive(tag).unlink(missing_ok=True)
        try:
            if _exists(tag):
                drop_image(tag)
        except ImageError as error:
            complaints.append(str(error))
    _prune(Progress())
    if complaints:
        raise ImageError("\n".join(complaints))


def image_archive(tag: str) -> Path:
    """Path of the archive that `build_image` makes for this tag; it need not exist."""
    return _folder() / archive_name(tag)


def archive_name(tag: str) -> str:
    """Name of the file for an image."""
    return re.sub(r"[^\w.-]+", "_", tag) + ".tar"


def package_sources(folder: Path = Path("/etc/apt")) -> Path:
    """Return the file with the package sources of the distribution itself; `ImageError` if there is none."""
    for name in _SOURCES:
        if (folder / name).is_file() and (folder / name).read_text().strip():
            return folder / name
    raise ImageError(
        f"{folder} has none of {', '.join(_SOURCES)}, so there is nothing to make a base image from.\n"
        "Make base images on Debian or Ubuntu, or build on an image that is there already."
    )


def _of_busybox(tag: str, containerfile: str, progress: Progress | None) -> Path:
    program = shutil.which("busybox", path=SEARCH)
    if program is None:
        raise ImageError("there is no busybox.\nInstall it: apt-get install busybox-static")
    content = containerfile.encode() + Path(program).read_bytes()
    folder = _folder() / hashlib.sha256(content).hexdigest()[:16]
    path = folder / archive_name(tag)
    if not path.exists():
        with _shown(progress, f"building {tag}") as shown, tempfile.TemporaryDirectory() as scratch:
            shutil.copy(program, Path(scratch) / "busybox")
            _build(tag, _written(scratch, containerfile), Path(scratch), (), shown)
            folder.mkdir(exist_ok=True)
            _archive(tag, shown).replace(path)
    return path


def _bootstrap(target: Path, release: str, packages: Sequence[str], progress: Progress) -> None:
    _run(
        [
            *("mmdebstrap", "--mode=root", "--variant=minbase", f"--include={','.join(packages)}"),
            *(f"--dpkgopt=path-exclude={pattern}" for pattern in _EXCLUDED),
            "--customize-hook=ln -s python3 $1/usr/bin/python",
            *(release, str(target), str(package_sources())),
        ],
        progress,
    )


def _build(tag: str, containerfile: Path, context: Path, flags: Sequence[str], progress: Progress) -> None:
    command = buildah_command(
        "build", "--isolation=chroot", f"--tag={tag}", f"--file={containerfile.resolve()}", *flags
    )
    _run([*command, str(context.resolve())], progress)
    _prune(progress)  # the image that had this tag before


def _prune(progress: Progress) -> None:
    """Remove images without a name; if another process removes one meanwhile it fails, and is done later."""
    with suppress(ImageError):
        _run(buildah_command("rmi", "--prune"), progress)


def _archive(tag: str, progress: Progress) -> Path:
    path = image_archive(tag)
    with tempfile.TemporaryDirectory(prefix=".archive-", dir=_folder()) as scratch:
        draft = Path(scratch) / "image.tar"
        _run(buildah_command("push", "--quiet", tag, f"docker-archive:{draft}:{tag}"), progress)
        draft.replace(path)
    return path


def _exists(tag: str) -> bool:
    command = buildah_command("inspect", "--type=image", tag)
    return subprocess.run(command, env=_environ(), capture_output=True, check=False).returncode == 0


def buildah_command(*arguments: str) -> list[str]:
    """A command of buildah on the folder in which the images of this module are."""
    storage = _folder() / "storage"
    places = [f"--root={storage / 'root'}", f"--runroot={storage / 'run'}"]
    return ["buildah", "--storage-driver=vfs", *places, *arguments]


def buildah_configuration() -> Path:
    """The file that CONTAINERS_CONF is to name, so that buildah locks no network of the machine's.

    None of our builds has a network of its own, but buildah makes /etc/cni for the lock all the same.
    """
    path = _folder() / "containers.conf"
    text = f"[network]\nnetwork_config_dir = {json.dumps(str(_folder() / 'network'))}\n"
    if not path.exists() or path.read_text() != text:
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(text)
        draft.replace(path)
    return path


def _run(command: Sequence[str], progress: Progress) -> None:
    code, lines = run_with_progress(command, cwd=Path("/"), environ=_environ(), progress=progress)
    if code:
        raise ImageError(
            f"{' '.join(command[:1])} ended with code {code}:\n{tail(lines)}\n"
            "Correct what it complains about; `python -m tools.node packages` names missing packages."
        )


def _environ() -> dict[str, str]:
    return os.environ | {"PATH": SEARCH, "CONTAINERS_CONF": str(buildah_configuration())}


def _folder() -> Path:
    folder = cache_root(os.environ).parent / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _written(folder: str, containerfile: str) -> Path:
    path = Path(folder) / "Containerfile"
    path.write_text(containerfile)
    return path


@contextmanager
def _shown(progress: Progress | None, what: str) -> Iterator[Progress]:
    progress = progress or Progress()
    progress.begin(what)
    yield progress
    progress.end()
