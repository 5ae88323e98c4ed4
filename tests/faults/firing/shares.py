"""Operators, and the schedules that each of them owns."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from astrabox_scheduler_crds.assignment import owner
from tests.faults.scenes.processes import operator_lease
from tests.faults.scenes.schedules import install, schedule, until_shared
from tests.faults.stage.clock import Clock
from tests.faults.stage.rig import Rig


def operators(first: int, last: int) -> list[str]:
    """Their names."""
    return [f"operator-{number}" for number in range(first, last + 1)]


async def start_operators(rig: Rig, names: Sequence[str], clocks: Mapping[str, float] | None = None) -> None:
    """Start these, two at a time: a start costs seconds of CPU, and each has a minute to be ready."""
    for number in range(0, len(names), 2):
        async with asyncio.TaskGroup() as group:
            for name in names[number : number + 2]:
                clock = Clock.offset(clocks[name]) if clocks and name in clocks else None
                group.create_task(rig.start_operator(name, clock=clock))


def shared_out(rig: Rig, operators: Sequence[str], each: int, prefix: str = "s") -> dict[str, list[str]]:
    """Deployment ids of which each of these live operators owns so many, by operator."""
    names = {operator_lease(rig, operator): operator for operator in operators}
    shares: dict[str, list[str]] = {operator: [] for operator in operators}
    number = 0
    while any(len(share) < each for share in shares.values()):
        number += 1
        share = shares[names[str(owner(f"{prefix}{number}", names))]]
        if len(share) < each:
            share.append(f"{prefix}{number}")
    return shares


async def install_shares(rig: Rig, operators: Sequence[str], each: int) -> dict[str, list[str]]:
    """Let each of these live operators own so many that are due every minute; they, once they are seen."""
    shares = shared_out(rig, operators, each)
    deployments = [name for share in shares.values() for name in share]
    await install(rig, [schedule(name) for name in deployments])
    await until_shared(rig, deployments)
    return shares


def succession(rig: Rig, operators: Sequence[str], item: str) -> list[str]:
    """Which operator owns `item`, which does when that one is gone, and so on."""
    left, order = {operator_lease(rig, operator): operator for operator in operators}, []
    while left:
        order.append(left.pop(str(owner(item, left))))
    return order
