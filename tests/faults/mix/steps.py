"""The vocabulary of a plan: what is asked of AstraBox, and what is done to processes, at which second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

Workload = Literal[
    "create",
    "edit-cron",
    "edit-payload",
    "disable",
    "enable",
    "delete",
    "recreate",
    "reconcile",
    "run-now",
    "replay",
]
Single = Literal["kill", "terminate", "arm", "freeze", "cut", "silence", "swallow", "slow", "rotate"]
"""Faults of one process."""
Wide = Literal[
    "kill-apiserver",
    "kill-etcd",
    "answer-429",
    "answer-500",
    "roll-hosts",
    "roll-operators",
    "hosts-away",
    "operators-away",
]
"""Faults of all processes, or of all of one role."""
Kind = Workload | Single | Wide

WORKLOAD: Final[tuple[Workload, ...]] = get_args(Workload)
SINGLE: Final[tuple[Single, ...]] = get_args(Single)
WIDE: Final[tuple[Wide, ...]] = get_args(Wide)


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do at `at` seconds; second 0 is a whole minute of the wall clock."""

    at: float
    kind: Kind
    target: str = ""
    """A deployment id, or the name of a process."""
    seconds: float = 0.0
    """How long a fault lasts; of a kill: until the process is started again."""
    pick: int = 0
    """Which of the hosts that are up gets the command (modulo their number), or which run is replayed."""
    cron: str = ""
    zone: str = ""
    payload: Mapping[str, Any] = field(default_factory=dict)
    point: str = ""
    """arm: the crash point."""
    action: str = ""
    """arm: what happens there; `hosts-away` and `operators-away`: kill or terminate; of hosts also cut."""
