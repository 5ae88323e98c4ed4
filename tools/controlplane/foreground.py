"""What the command lines share: signals, errors and exit codes, and a cluster that runs until Ctrl-C."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

from tools.controlplane.cluster import Cluster
from tools.controlplane.errors import ControlPlaneError

_Cluster = TypeVar("_Cluster", bound=Cluster)


def exit_code(command: Callable[[], int]) -> int:
    """Run a command; 1 after an error that this package raises on purpose, 130 after SIGINT or SIGTERM."""
    # SIGINT too: a shell that runs this in the background has it ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        return command()
    except ControlPlaneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def run_until_interrupted(cluster: _Cluster, print_usage: Callable[[_Cluster, float], None]) -> int:
    """Start a cluster, say how it is used and after how many seconds it was ready, and wait for Ctrl-C."""
    began = time.monotonic()
    with cluster:
        print_usage(cluster, time.monotonic() - began)
        try:
            while True:
                time.sleep(1)
                cluster.check()
        except KeyboardInterrupt:
            print("stopping", file=sys.stderr)
    return 0


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
