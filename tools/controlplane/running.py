"""Runs one long command while its progress is shown."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.controlplane.progress import Progress


def run_with_progress(
    command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], progress: Progress
) -> tuple[int, list[str]]:
    """Exit code and output lines (both streams) of a command; each line is shown as the current detail."""
    with subprocess.Popen(
        command,
        cwd=cwd,
        env=dict(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        try:
            assert process.stdout is not None
            lines = list(_lines(process.stdout.fileno(), progress))
        except BaseException:
            process.terminate()
            progress.end("interrupted")
            raise
    if process.returncode:
        progress.end("failed")
    return process.returncode, lines


def tail(lines: Sequence[str], count: int = 20) -> str:
    """Return the last lines, without the package names that `go build -v` prints as it goes."""
    telling = [line for line in lines if " " in line.strip()]
    return "\n".join(f"  {line}" for line in telling[-count:]) or "  (no output)"


def _lines(descriptor: int, progress: Progress) -> Iterator[str]:
    pending = b""
    while True:
        readable, _, _ = select.select([descriptor], [], [], 0.5)
        if not readable:
            progress.tick()
            continue
        chunk = os.read(descriptor, 65536)
        if not chunk:
            break
        *complete, pending = (pending + chunk).split(b"\n")
        for raw in complete:
            line = raw.decode(errors="replace")
            progress.tick(line.strip())
            yield line
    if pending:
        yield pending.decode(errors="replace")
