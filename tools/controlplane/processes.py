"""The caller's side of `keeper.py`: starts, kills and watches the components of one control plane."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.controlplane.errors import KeeperGoneError, StartError

_CLOSE_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class End:
    """The end of one process: negative codes are signals, `at` is seconds since the epoch."""

    name: str
    pid: int
    code: int
    at: float


class Processes:
    """The components of one control plane and the private directory they live in.

    `within` is a command that runs the keeper, and by that all components, elsewhere: `unshare --net`, for
    example. It turns into the keeper by exec. Components inherit `descriptors`.
    """

    def __init__(
        self,
        prefix: str = "astrabox-controlplane-",
        *,
        within: Sequence[str] = (),
        descriptors: Sequence[int] = (),
    ) -> None:
        self._lock = threading.Lock()
        self._keeper = subprocess.Popen(
            [
                *within,
                sys.executable,
                "-I",
                "-S",
                str(Path(__file__).with_name("keeper.py")),
                prefix,
                str(os.getpid()),
                *map(str, descriptors),
            ],
            pass_fds=descriptors,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # a Ctrl-C on the terminal is for the caller, not for the components
        )
        try:
            self.directory = Path(self._answer()["directory"])
        except BaseException:
            self.close()
            raise
        self.pids: dict[str, int] = {}

    @property
    def keeper_pid(self) -> int:
        """The process that ends the others when the caller is gone."""
        return self._keeper.pid

    def log(self, name: str) -> Path:
        """Where a component's output goes."""
        return self.directory / f"{name}.log"

    def log_tail(self, name: str, lines: int = 15) -> str:
        """Return the last lines of a component's output, indented."""
        try:
            text = self.log(name).read_text(errors="replace")
        except OSError:
            return "  (no log)"
        return "\n".join(f"  {line[:300]}" for line in text.splitlines()[-lines:]) or "  (empty log)"

    def start(self, name: str, command: Sequence[str], environ: Mapping[str, str] | None = None) -> int:
        """Start a component; its process id. `environ` takes the place of our own environment."""
        given = None if environ is None else dict(environ)
        try:
            request = {"name": name, "command": list(command), "environ": given}
            pid = int(self._ask(operation="start", **request)["pid"])
        except OSError as error:
            raise StartError(
                f"{command[0]} could not be started: {error}\nIs it whole, and made for this machine? "
                "One in the cache can be deleted: `python -m tools.controlplane build` makes it again."
            ) from error
        self.pids[name] = pid
        return pid

    def kill(self, name: str, number: signal.Signals) -> None:
        """Signal a component and wait until it is gone (after 30 s it is killed)."""
        self._ask(operation="kill", name=name, signal=int(number))
        self.pids.pop(name, None)

    def remove_at_end(self, groups: Sequence[Path]) -> None:
        """Have the keeper remove these control groups once all components have ended; they need not exist."""
        self._ask(operation="groups", folders=[str(folder) for folder in groups])

    def signal(self, name: str, number: signal.Signals) -> None:
        """Signal a component and go on at once; its end is told by `exited` and `ends`."""
        self._ask(operation="signal", name=name, signal=int(number))

    def ends(self, after: int = 0) -> list[End]:
        """Every end so far, but for the first `after` of them."""
        return [End(**each) for each in self._ask(operation="ends", after=after)["ends"]]

    def exited(self) -> dict[str, int]:
        """Return codes of the components that have ended."""
        return {str(name): int(code) for name, code in self._ask(operation="poll")["exited"].items()}

    def close(self) -> None:
        """End everything and remove the directory; may be called again."""
        for pipe in (self._keeper.stdin, self._keeper.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # what is left to write to a dead keeper
                    pipe.close()
        try:
            self._keeper.wait(_CLOSE_TIMEOUT)
        except subprocess.TimeoutExpired:
            self._keeper.kill()  # its children die with it
            self._keeper.wait()
        self.pids = {}

    def _ask(self, **request: Any) -> dict[str, Any]:
        with self._lock:
            assert self._keeper.stdin is not None
            try:
                self._keeper.stdin.write(json.dumps(request).encode() + b"\n")
                self._keeper.stdin.flush()
            except (BrokenPipeError, ValueError) as error:
                raise KeeperGoneError("the control plane has been stopped; start another one") from error
            return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._keeper.stdout is not None
        line = self._keeper.stdout.readline()
        if not line:
            raise KeeperGoneError(
                "the keeper of the control plane ended early; is the temporary folder (TMPDIR) full?"
            )
        answer: dict[str, Any] = json.loads(line)
        if "errno" in answer:
            raise OSError(answer["errno"], answer["error"])
        if "error" in answer:
            raise StartError(f"the control plane cannot do that: {answer['error']}")
        return answer
