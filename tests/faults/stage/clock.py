"""A wrong wall clock for one process, by libfaketime. The monotonic clocks stay true."""

from __future__ import annotations

import sysconfig
from collections.abc import Mapping
from pathlib import Path

_LIBRARY = "faketime/libfaketimeMT.so.1"


class ClockError(Exception):
    """libfaketime is not installed."""


class Clock:
    """A wall clock that is `seconds` ahead of the true one; negative: behind. For one process."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._file: Path | None = None

    @classmethod
    def offset(cls, seconds: float) -> Clock:
        """A clock that is ahead by so much from the start."""
        return cls(seconds)

    @classmethod
    def steps(cls) -> Clock:
        """A clock that is right until it is told to `jump`."""
        return cls(0.0)

    def jump(self, seconds: float) -> None:
        """From now on be ahead by so much, also in a process that runs."""
        self.seconds = seconds
        if self._file is not None:
            draft = self._file.with_suffix(".draft")
            draft.write_text(f"{seconds:+.3f}\n")
            draft.replace(self._file)

    def environment(self, file: Path) -> Mapping[str, str]:
        """What the process has to find in its environment; `file` is where it reads the offset.

        Raises ClockError.
        """
        self._file = file
        self.jump(self.seconds)
        return {
            "LD_PRELOAD": str(find_library()),
            "FAKETIME_TIMESTAMP_FILE": str(file),
            "FAKETIME_NO_CACHE": "1",  # the file is read for every look at the clock
            "DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # The wait for Python's global lock is by the monotonic clock. "Fixed" for fake time it returns at
            # once, so that every thread without the lock spins, and a process of three hardly gets on.
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }


def find_library() -> Path:
    """Where the system keeps libfaketime. Raises ClockError."""
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    folders = [f"/usr/lib/{multiarch}", "/usr/lib", "/usr/lib64", "/usr/local/lib"]
    for folder in folders:
        if (path := Path(folder) / _LIBRARY).is_file():
            return path
    raise ClockError(
        f"no {_LIBRARY} in {', '.join(folders)}: install the package libfaketime"
        " (apt-get install libfaketime)"
    )


def forget_clock(pid: int) -> None:
    """Remove what libfaketime leaves in memory behind a process that was killed."""
    for name in (f"faketime_shm_{pid}", f"sem.faketime_sem_{pid}"):
        (Path("/dev/shm") / name).unlink(missing_ok=True)
