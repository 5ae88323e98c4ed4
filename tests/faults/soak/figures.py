"""What a soak has seen so far, added up over its rounds, and told as a table."""

from __future__ import annotations

import os
import platform
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.history.facts import Violation
from tests.faults.history.spans import quantile
from tests.faults.history.summary import Summary, counted
from tests.faults.mix.performance import Performance
from tests.faults.mix.steps import WORKLOAD

_SHARES = {"p50": 0.5, "p99": 0.99, "max": 1.0}


@dataclass(slots=True)
class Figures:
    """Sums over rounds; `violations` by guarantee."""

    seed: int
    began: float
    rounds: int = 0
    seconds: float = 0.0
    processes: Counter[str] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    passed_over: Counter[str] = field(default_factory=Counter)
    outages: Counter[str] = field(default_factory=Counter)
    commands: Counter[str] = field(default_factory=Counter)
    due: Counter[str] = field(default_factory=Counter)
    runs: Counter[str] = field(default_factory=Counter)
    killed: int = 0
    calls: int = 0
    takeovers: int = 0
    lateness: list[float] = field(default_factory=list)
    violations: Counter[str] = field(default_factory=Counter)

    def add(self, performance: Performance, summary: Summary, violations: list[Violation]) -> None:
        """One more round."""
        history = performance.history
        self.rounds += 1
        self.seconds += history.ended - history.begun
        self.processes += Counter(performance.processes)
        self.steps += performance.done.steps
        self.passed_over += performance.done.passed_over
        self.outages += Counter(outage.what for outage in history.outages)
        self.commands += Counter(summary.commands)
        self.due["certain"] += summary.due_certain
        self.due["uncertain"] += summary.due_uncertain
        self.due["fired"] += summary.fired
        self.due["cancelled"] += summary.cancelled
        self.due["skipped"] += summary.skipped
        self.runs += Counter(summary.phases)
        self.killed += summary.killed
        self.calls += summary.calls
        self.takeovers += summary.takeovers
        self.lateness = sorted([*self.lateness, *summary.lateness])
        self.violations += Counter(each.guarantee for each in violations)
        self.violations["G10"] += len(performance.differing)

    def late(self, share: float) -> float:
        """The lateness in seconds that this share of the scheduled runs did not exceed."""
        return quantile(self.lateness, share)

    def table(self) -> str:
        """Markdown."""
        started = sum(count for what, count in self.processes.items() if what.startswith("start "))
        ends = {what: count for what, count in self.processes.items() if not what.startswith("start ")}
        late = [f"{name} {self.late(share):.2f} s" for name, share in _SHARES.items()]
        rows = {
            "seed": str(self.seed),
            "duration": f"{self.seconds / 60:.0f} min in {self.rounds} rounds",
            "process kills": f"{self.killed} by SIGKILL; {counted(ends)}",
            "process starts": str(started),
            "restarts of the store": counted(self.outages),
            "faults": counted({kind: count for kind, count in self.steps.items() if kind not in WORKLOAD}),
            "commands": counted(self.commands),
            "due times": counted(self.due),
            "runs": counted(self.runs),
            "handler calls": f"{self.calls}, {self.takeovers} changes of process",
            "lateness": ", ".join(late),
            "lost, doubled, stuck, or any other violation": counted(self.violations) or "0",
            "machine": machine(),
        }
        lines = [f"| {name} | {value} |" for name, value in rows.items()]
        return "\n".join(["| soak | |", "|---|---|", *lines])


def machine() -> str:
    """What this was measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "?")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} x {model}, {memory:.0f} GiB, {system}"
