"""Owns the processes and the directory of one control plane, and ends both when its caller is gone.

Run as a script of its own (`python -I -S keeper.py PREFIX PARENT`), standard library only. It reads one JSON
request a line and answers each with one JSON line. The end of its input is how it is stopped, so an orderly
`stop()`, Ctrl-C, SIGTERM and SIGKILL of the caller all take the same path: the kernel closes the pipe.

Why a process between: PR_SET_PDEATHSIG alone fires when the *thread* that started a child ends, which may be
a short-lived worker thread of a test, and it cannot remove a directory. This process has one thread, so here
it is safe, and it covers the one case left: the keeper itself being killed.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

_PR_SET_PDEATHSIG = 1
_PATIENCE = 30  # seconds a component has to end after a polite signal
_LIBC = ctypes.CDLL(None, use_errno=True)


class Keeper:
    """The children of one control plane, by name."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.children: dict[str, subprocess.Popen[bytes]] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request: `start`, `kill` or `poll`."""
        operation = request["operation"]
        if operation == "start":
            return {"pid": self.start(request["name"], request["command"])}
        if operation == "kill":
            return {"code": self.kill(request["name"], request["signal"])}
        return {"exited": {name: c.returncode for name, c in self.children.items() if c.poll() is not None}}

    def start(self, name: str, command: list[str]) -> int:
        """Start a child whose output is appended to `<name>.log`."""
        if name in self.children and self.children[name].poll() is None:
            raise RuntimeError(f"{name} is running already")
        # etcd takes each of its flags from the environment as well.
        environ = {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}
        with open(os.path.join(self.directory, f"{name}.log"), "ab") as log:  # noqa: PTH118, PTH123 - starts faster
            self.children[name] = subprocess.Popen(
                command,
                cwd=self.directory,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_keeper,  # noqa: PLW1509 - this process has one thread
            )
        return self.children[name].pid

    def kill(self, name: str, number: int) -> int:
        """Signal a child and wait for its end; its return code."""
        child = self.children.get(name)
        if child is None:
            raise RuntimeError(f"{name} is not running")
        child.send_signal(number)
        try:
            code = child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        del self.children[name]  # its end is expected, so `poll` does not tell of it
        return code

    def close(self) -> None:
        """End every child and remove the directory. Nothing is kept, so nobody is asked politely."""
        for child in self.children.values():
            child.kill()
        for child in self.children.values():
            child.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def _die_with_keeper() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _requests(parent: int) -> Iterator[dict[str, Any]]:
    pending = b""
    while True:
        readable, _, _ = select.select([0], [], [], 1.0)
        if not readable:
            # A forked child of the caller may hold our pipe open after the caller's death.
            if os.getppid() != parent:
                return
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return
        *complete, pending = (pending + chunk).split(b"\n")
        yield from (json.loads(line) for line in complete)


def _say(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _main(prefix: str, parent: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    keeper = Keeper(tempfile.mkdtemp(prefix=prefix))
    try:
        _say({"directory": keeper.directory})
        for request in _requests(parent):
            try:
                _say(keeper.answer(request))
            except OSError as error:
                _say({"error": error.strerror, "errno": error.errno})
            except RuntimeError as error:
                _say({"error": str(error)})
    except BrokenPipeError:
        pass  # the caller is gone, and that is what we are here for
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        keeper.close()


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))
