"""Gives a folder with the binaries asked for: the user's, the cached ones, or freshly built ones."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tools.controlplane.errors import BuildError
from tools.controlplane.progress import Progress
from tools.controlplane.recipe import CONTROL_PLANE, GO_MODULES, PROGRAMS, cache_key, ldflags, read_pins
from tools.controlplane.running import run_with_progress, tail
from tools.controlplane.sources import cache_root, given_assets
from tools.controlplane.toolchain import find_go, go_environment


def ensure_binaries(
    names: Collection[str] = CONTROL_PLANE,
    *,
    environ: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Path:
    """Folder that holds all of `names`, built if need be (minutes when Go's own cache is cold).

    They are of one kit of the recipe. Only those of `CONTROL_PLANE` may be brought by the user.
    """
    environ = os.environ if environ is None else environ
    given = given_assets(environ, names) if set(names) <= set(CONTROL_PLANE) else None
    if given is not None:
        return given
    folder = binary_folder(environ, names)
    if missing_binaries(folder, names):
        progress = progress or Progress()
        with _turned_into_advice(folder), _sole_builder(folder, progress):
            # Asked again: the other builder we may have waited for has made them.
            for name in missing_binaries(folder, names):
                _build(name, folder, environ, progress)
    return folder


def binary_folder(environ: Mapping[str, str], names: Collection[str] = CONTROL_PLANE) -> Path:
    """Where these binaries of the committed pins are cached; it need not exist."""
    return cache_root(environ) / cache_key(names)


def missing_binaries(folder: Path, names: Collection[str]) -> list[str]:
    """Those of `names` that are not in a folder of the cache, or differ from what was built there."""
    return [name for name in names if not _intact(folder / name)]


def build_advice(output: str) -> str:
    """Say what to do about a failed build, judged by the words of the compiler."""
    for signs, advice in _ADVICE:
        if any(sign in output for sign in signs):
            return advice
    return "The Go modules are pinned, so this should not happen; run `go clean -cache` once and try again."


_ADVICE = (
    (
        ("no space left on device", "disk quota exceeded"),
        "The disk is full: a build needs about 4 GB for Go's caches, 0.3 GB for the result.",
    ),
    (
        (
            "dial tcp",
            "no such host",
            "i/o timeout",
            "connection refused",
            "module lookup disabled",
            "TLS handshake",
            "proxyconnect",
            "network is",
        ),
        "Go modules could not be downloaded: check the network, and GOPROXY if this machine uses a mirror.",
    ),
    (
        ("signal: killed", "cannot allocate memory"),
        "The compiler ran out of memory: about 4 GB should be free.",
    ),
    (("cgo", "gcc"), "The C compiler does not work here; set CGO_ENABLED=0 and try again."),
    (
        ("checksum mismatch",),
        "A downloaded module is not the pinned one: check GOPROXY, run `go clean -modcache`.",
    ),
    (
        ("permission denied", "read-only file system"),
        "Make Go's cache writable, or set GOCACHE and GOMODCACHE.",
    ),
)


def _intact(binary: Path) -> bool:
    try:
        with binary.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        return os.access(binary, os.X_OK) and _digest_file(binary).read_text() == actual
    except OSError:
        return False


def _digest_file(binary: Path) -> Path:
    return binary.with_name(f"{binary.name}.sha256")


def _build(name: str, folder: Path, environ: Mapping[str, str], progress: Progress) -> None:
    pins, program = read_pins(), PROGRAMS[name]
    go = find_go(pins.go, environ, folder.parent, progress)
    progress.begin(f"building {name} {pins.version(program)}")
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as scratch:
        output = Path(scratch) / name
        flags = ["-v", "-trimpath", "-tags", program.tags, "-ldflags", ldflags(program, pins.kubernetes)]
        code, lines = run_with_progress(
            [str(go), "build", *flags, "-o", str(output), program.package],
            cwd=GO_MODULES / program.module,
            environ=go_environment(environ),
            progress=progress,
        )
        if code:
            raise BuildError(f"building {name} failed:\n{tail(lines)}\n{build_advice(chr(10).join(lines))}")
        with output.open("rb") as file:
            _digest_file(output).write_text(hashlib.file_digest(file, "sha256").hexdigest())
        # The digest goes first: a binary without its digest, or with another's, is built again.
        _digest_file(output).replace(_digest_file(folder / name))
        output.replace(folder / name)
    progress.end(str(folder / name))


@contextlib.contextmanager
def _sole_builder(folder: Path, progress: Progress) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "build.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress.begin("waiting for another build of the control plane")
            while not _locked(lock.fileno()):
                time.sleep(0.5)
                progress.tick()
            progress.end()
        # Left by builders that were killed; nobody else builds while we hold the lock.
        for stale in (*folder.glob(".build-*"), *folder.parent.glob("go-bin-*.tmp-*")):
            shutil.rmtree(stale, ignore_errors=True)
        yield


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def _turned_into_advice(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BuildError(
            f"{folder} cannot be filled: {error}\n"
            "Free some space there, or set XDG_CACHE_HOME to a folder that can be written to."
        ) from error
