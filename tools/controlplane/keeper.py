"""Owns the processes and the directory of one control plane, and ends both when its caller is gone.

Run as a script of its own (`python -I -S keeper.py PREFIX PARENT [DESCRIPTOR...]`), standard library only.
It reads one JSON request a line and answers each with one JSON line. The end of its input is how it is
stopped, so an orderly `stop()`, Ctrl-C, SIGTERM and SIGKILL of the caller all take the same path: the kernel
closes the pipe.

Why a process between: PR_SET_PDEATHSIG alone fires when the *thread* that started a child ends, which may be
a short-lived worker thread of a test, and it cannot remove a directory. This process has one thread, so here
it is safe, and it covers the one case left: the keeper itself being killed. Then only the directory (which is
locked as long as its keeper lives) and control groups can stay behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

_PR_SET_PDEATHSIG = 1
_PATIENCE = 30  # seconds a component has to end after a polite signal
_GROUP_PATIENCE = 10  # seconds that the kernel has to take the dead out of a control group
_LIBC = ctypes.CDLL(None, use_errno=True)


class Keeper:
    """The children of one control plane, by name."""

    def __init__(self, directory: str, descriptors: list[int]) -> None:
        self.directory = directory
        self.descriptors = descriptors
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        self.ends: list[dict[str, Any]] = []
        self.groups: list[str] = []

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out one request: `start`, `kill`, `signal`, `groups`, `ends` or `poll`."""
        operation = request["operation"]
        if operation == "start":
            return {"pid": self.start(request["name"], request["command"], request.get("environ"))}
        if operation == "groups":
            self.groups = request["folders"]
            return {}
        if operation == "kill":
            return {"code": self.kill(request["name"], request["signal"])}
        if operation == "signal":
            self.child(request["name"]).send_signal(request["signal"])
            return {}
        self.look()
        if operation == "ends":
            return {"ends": self.ends[request["after"] :]}
        return {"exited": {name: c.returncode for name, c in self.children.items() if c.poll() is not None}}

    def look(self) -> None:
        """Note the children that have ended; called as soon as one does."""
        for name, child in self.children.items():
            ended = child.poll() is not None
            if ended and all(each["pid"] != child.pid for each in self.ends):
                self.ends.append(
                    {"name": name, "pid": child.pid, "code": child.returncode, "at": time.time()}
                )

    def child(self, name: str) -> subprocess.Popen[bytes]:
        """A child that was started and not yet killed."""
        if name not in self.children:
            raise RuntimeError(f"{name} is not running")
        return self.children[name]

    def start(self, name: str, command: list[str], environ: dict[str, str] | None) -> int:
        """Start a child whose output is appended to `<name>.log`; in our own environment by default."""
        if name in self.children and self.children[name].poll() is None:
            raise RuntimeError(f"{name} is running already")
        self.look()
        if environ is None:
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
                pass_fds=self.descriptors,
                preexec_fn=_die_with_keeper,  # noqa: PLW1509 - this process has one thread
            )
        return self.children[name].pid

    def kill(self, name: str, number: int) -> int:
        """Signal a child and wait for its end; its return code."""
        child = self.child(name)
        child.send_signal(number)
        try:
            code = child.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            child.kill()
            code = child.wait()
        self.look()
        del self.children[name]  # its end is expected, so `poll` does not tell of it
        return code

    def close(self) -> None:
        """End every child, remove groups and directory. Nothing is kept, so nobody is asked politely."""
        for child in self.children.values():
            child.kill()
        # In reverse: process 1 of a namespace, if there is one, ends only after we have waited for the rest.
        for child in reversed(self.children.values()):
            child.wait()
        deadline = time.monotonic() + _GROUP_PATIENCE
        while self.groups and time.monotonic() < deadline:
            self.groups = [folder for folder in self.groups if not remove_group(folder)]
            time.sleep(0.02)
        shutil.rmtree(self.directory, ignore_errors=True)


def remove_group(folder: str) -> bool:
    """Remove a control group and those in it; whether it is gone. The kernel spares one with processes."""
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)  # noqa: PTH106 - starts faster
    return not os.path.exists(folder)  # noqa: PTH110 - starts faster


def _die_with_keeper() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _requests(parent: int, keeper: Keeper) -> Iterator[dict[str, Any]]:
    pending = b""
    ended = _wake_up_at_an_end()
    while True:
        readable, _, _ = select.select([0, ended], [], [], 1.0)
        if ended in readable:
            os.read(ended, 4096)
            keeper.look()
        if readable == [ended]:
            continue
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


def _wake_up_at_an_end() -> int:
    """A descriptor that can be read when a child has ended, so that the time of its end is known."""
    ended, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return ended


def _say(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _main(prefix: str, parent: int, descriptors: list[int]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    keeper = Keeper(tempfile.mkdtemp(prefix=prefix), descriptors)
    fcntl.flock(os.open(keeper.directory, os.O_RDONLY), fcntl.LOCK_EX)  # our end unlocks it
    try:
        _say({"directory": keeper.directory})
        for request in _requests(parent, keeper):
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
    _main(sys.argv[1], int(sys.argv[2]), [int(each) for each in sys.argv[3:]])
