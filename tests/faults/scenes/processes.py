"""Operators and hosts: their settings, which of them live, and the Leases that they hold."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from tests.faults.scenes.runs import enqueue, runs
from tests.faults.stage.actors import PREFIXES
from tests.faults.stage.rig import Rig

LEASE: Final = 15.0
"""Seconds for which a Lease holds that is not renewed."""
TAKEN_OVER_WITHIN: Final = LEASE + 5.0
"""Seconds from the loss of a host to the next call for its runs: its Lease, and the time to notice."""


def host_settings(**values: object) -> dict[str, str]:
    """A host's environment."""
    return {PREFIXES["host"] + name: str(value) for name, value in values.items()}


def operator_settings(**values: object) -> dict[str, str]:
    """An operator's environment."""
    return {PREFIXES["operator"] + name: str(value) for name, value in values.items()}


async def start(rig: Rig, *, operators: int, hosts: int) -> None:
    """Start so many more, side by side; returns when all are ready."""
    async with asyncio.TaskGroup() as group:
        group.create_task(rig.start_operators(operators))
        group.create_task(rig.start_hosts(hosts))


def alive(rig: Rig) -> set[str]:
    """Names of the processes that run now."""
    rig.actors.look()
    return {life.name for life in rig.journal.lives if life.end is None}


async def host_lease(rig: Rig, host: str) -> str:
    """The Lease under which a host has runs assigned to it: that of a run it has just saved."""
    (name,) = await enqueue(rig, host, {}, of="asked-for-its-lease")
    lease = (await runs(rig))[name]["spec"]["createdBy"]["identity"]
    assert isinstance(lease, str)
    return lease


def operator_lease(rig: Rig, operator: str) -> str:
    """The Lease of an operator's latest life, as its log tells it."""
    log = rig.actors.processes.log(operator).read_text()
    return str(re.findall(r": starting .*\bidentity=(\S+)", log)[-1])
