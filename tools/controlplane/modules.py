"""The sources of a pinned Go module, for what is read of it and not built: definitions of resources."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from tools.controlplane.binaries import build_advice
from tools.controlplane.errors import BuildError
from tools.controlplane.progress import Progress
from tools.controlplane.recipe import GO_MODULES, REQUIRED, read_pins
from tools.controlplane.running import run_with_progress, tail
from tools.controlplane.sources import cache_root
from tools.controlplane.toolchain import find_go, go_environment


def ensure_module(
    name: str, *, environ: Mapping[str, str] | None = None, progress: Progress | None = None
) -> Path:
    """Folder of the module that `go/<name>` pins, downloaded if need be and checked against its go.sum.

    It is Go's own cache, not to be written to. Raises BuildError.
    """
    environ, progress = os.environ if environ is None else environ, progress or Progress()
    pins, cache = read_pins(), cache_root(environ)
    cache.mkdir(parents=True, exist_ok=True)
    go = find_go(pins.go, environ, cache, progress)
    progress.begin(f"looking for {REQUIRED[name]} {pins.versions[name]}")
    code, lines = run_with_progress(
        [str(go), "mod", "download", "-json", REQUIRED[name]],
        cwd=GO_MODULES / name,
        environ=go_environment(environ),
        progress=progress,
    )
    text = "\n".join(lines)
    if code:
        raise BuildError(f"{REQUIRED[name]} could not be downloaded:\n{tail(lines)}\n{build_advice(text)}")
    folder = Path(json.loads(text[text.index("{") : text.rindex("}") + 1])["Dir"])
    progress.end(str(folder))
    return folder
