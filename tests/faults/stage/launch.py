"""`python -m tests.faults.stage.launch --points DIR [--service-account DIR] MODULE ARGUMENTS...`.

Runs a module of the product as the main program, after the one method through which all its requests go
has been wrapped, and the service account's folder of a pod has been put elsewhere. The product has no
hooks for this.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import runpy
import select
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from astrabox.host_deployments import DeploymentRecords
from astrabox.host_handler import HostHandler
from astrabox.host_wire import schedule_to_wire
from astrabox.seams.scheduler import Schedule
from astrabox_scheduler_client.incluster import load_in_cluster
from astrabox_scheduler_client.transport import Transport
from tests.faults.stage.points import STEPS, WRITES, Points, UnnamedWriteError, name_of

UNNAMED_WRITE_CODE = 70
RECONCILED = "reconciled"
"""The `action` of a log line with the Deployment records that a host hands over when it starts."""


def main() -> None:
    """Wrap, and become the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.stage.launch", description=__doc__)
    parser.add_argument("--points", type=Path, required=True)
    parser.add_argument("--service-account", type=Path)
    parser.add_argument("module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    points = Points(options.points)
    wrap_transport(points)
    wrap_handler(points)
    wrap_records(points)
    if "FAKETIME_TIMESTAMP_FILE" in os.environ:
        time.sleep = _sleep  # type: ignore[assignment]
    if options.service_account is not None:
        load_in_cluster.__defaults__ = (options.service_account,)
    sys.argv = [options.module, *options.arguments]
    runpy.run_module(options.module, run_name="__main__", alter_sys=True)


def wrap_transport(points: Points) -> None:
    """Pass a point before each write is sent, and another after it has succeeded."""
    original = Transport.request

    @functools.wraps(original)
    async def request(
        self: Transport, method: str, path: str, *, body: bytes | None = None, **more: Any
    ) -> bytes:
        if method not in WRITES:
            return await original(self, method, path, body=body, **more)
        name = _name_or_end(method, path, body)

        async def connect() -> None:
            # Two at once, so that one is left when another task of the process takes one of them.
            await asyncio.gather(*(original(self, "GET", "/version") for _ in range(2)))

        await points.passing(f"before:{name}", connect)
        answer = await original(self, method, path, body=body, **more)
        await points.passing(f"after:{name}")
        return answer

    Transport.request = request  # type: ignore[method-assign]


def wrap_handler(points: Points) -> None:
    """The same around the calls of AstraBox's handler."""
    for step in STEPS:
        setattr(HostHandler, step, _around(points, step, getattr(HostHandler, step)))


def wrap_records(points: Points) -> None:
    """Note which Deployment records a host hands over by itself."""
    original = DeploymentRecords.all

    def read(self: DeploymentRecords) -> list[Schedule]:
        found = original(self)
        given = [{**schedule_to_wire(rule), "payload": dict(rule.payload)} for rule in found]
        points.log("", RECONCILED, given=given)
        return found

    DeploymentRecords.all = read  # type: ignore[method-assign]


def _sleep(seconds: float) -> None:
    """`time.sleep`, which fails under libfaketime 0.9.10: it moves the monotonic end of an absolute sleep."""
    select.select([], [], [], seconds)


def _around(points: Points, step: str, call: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapped(self: HostHandler, *arguments: Any) -> Any:
        await points.passing(f"before:{step}")
        result = await call(self, *arguments)
        await points.passing(f"after:{step}")
        return result

    return wrapped


def _name_or_end(method: str, path: str, body: bytes | None) -> str:
    try:
        return name_of(method, path, body)
    except UnnamedWriteError as error:
        sys.stderr.write(f"tests.faults.stage.points has no name for the write {error}: add it\n")
        sys.stderr.flush()
        os._exit(UNNAMED_WRITE_CODE)


if __name__ == "__main__":
    main()
