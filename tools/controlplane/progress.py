"""Says what a long step is doing: one updating line on a terminal, else a plain line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TextIO

PLAIN_INTERVAL = 10.0
TERMINAL_INTERVAL = 0.2


def progress_line(what: str, elapsed: float, detail: str, width: int | None = None) -> str:
    """Format `what: 1m05s, detail`, cut to the width of a terminal if one is given; elapsed in seconds."""
    minutes, seconds = divmod(int(elapsed), 60)
    clock = f"{minutes}m{seconds:02}s" if minutes else f"{seconds}s"
    line = f"{what}: {clock}, {detail}" if detail else f"{what}: {clock}"
    return line if width is None or len(line) <= width else line[: max(width - 3, 0)] + "..."


class Progress:
    """Progress of one step after another on a stream; standard error unless told otherwise."""

    def __init__(
        self, stream: TextIO | None = None, *, now: Callable[[], float] = time.monotonic, width: int = 100
    ) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._terminal = self._stream.isatty()
        self._now = now
        self._width = width
        self._what = ""
        self._detail = ""
        self._began = self._shown = now()

    def begin(self, what: str) -> None:
        """Start a step and say so."""
        self._what, self._detail = what, ""
        self._began = self._shown = self._now()
        self._show()

    def tick(self, detail: str | None = None) -> None:
        """Note a detail, and show the line if it is time to."""
        if detail is not None:
            self._detail = detail
        interval = TERMINAL_INTERVAL if self._terminal else PLAIN_INTERVAL
        if self._now() - self._shown >= interval:
            self._show()

    def end(self, result: str = "done") -> None:
        """Close the step with a last line."""
        self._detail = result
        self._show()
        if self._terminal:
            self._write("\n")

    def _show(self) -> None:
        self._shown = self._now()
        line = progress_line(
            self._what, self._shown - self._began, self._detail, self._width if self._terminal else None
        )
        self._write(f"\r\x1b[K{line}" if self._terminal else f"{line}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
