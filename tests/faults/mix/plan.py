"""A seeded plan: what is asked of AstraBox and what goes wrong, at which second. Pure.

The same seed gives the same plan on any machine: everything is drawn from one `random.Random`, in a
fixed order. Outside the steps `hosts-away` and `operators-away` a plan leaves some processes of each role
alone at any time (`Density.hosts_left`, `Density.operators_left`), so that most due times are certain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.faults.mix.steps import SINGLE, WIDE, Single, Step, Wide
from tests.faults.mix.workload import WorkloadDraw

CRASH_POINTS: Final = tuple(
    f"{side}:{write}"
    for write in (
        "attempt-begun",
        "session-saved",
        "turn-saved",
        "failure-saved",
        "run-released",
        "run-adopted",
        "schedule-updated",
        "schedule-created",
        "schedule-deleted",
        "run-created",
        "schedule-status",
        "lease-renewed",
        "start_session",
        "admit_turn",
    )
    for side in ("before", "after")
)
_OF_OPERATORS: Final = ("run-created", "schedule-status", "lease-renewed")
_OF_HOSTS_TOO: Final = ("run-created", "lease-renewed")
_ARM_WEIGHT: Final = 4
"""There are many crash points, and they are what a plain kill meets only by luck."""
_QUIET_END: Final = 20.0
"""The last seconds see no new fault, so that what lasts ends inside the plan."""


@dataclass(frozen=True, slots=True)
class Density:
    """How much happens, in events a minute, and how many processes are left alone."""

    deployments: int = 36
    commands: float = 20.0
    singles: float = 12.0
    wides: float = 2.0
    outages: float = 0.7
    """Of the API server or etcd, among `wides`."""
    kills: float = 0.45
    """Share of kills among the faults of one process."""
    hosts_left: int = 1
    operators_left: int = 1
    to_ready: float = 12.0
    """Seconds until a process that was started is left in peace no longer."""


def plan(
    seed: int,
    seconds: float,
    hosts: Sequence[str],
    operators: Sequence[str],
    density: Density | None = None,
) -> tuple[Step, ...]:
    """The steps of `seconds` seconds, in order."""
    density = density or Density()
    rng = Random(seed)
    steps = _workload(rng, seconds, tuple(hosts), density)
    steps += _Faults(rng, seconds, tuple(hosts), tuple(operators), density).draw()
    return tuple(sorted(steps, key=lambda step: step.at))  # stable: equal seconds stay in order


def _workload(rng: Random, seconds: float, hosts: tuple[str, ...], density: Density) -> list[Step]:
    draw = WorkloadDraw(rng, hosts)
    steps = [draw.create(0.0) for _ in range(density.deployments)]
    at = rng.expovariate(density.commands / 60)
    while at < seconds:
        steps.append(draw.draw(round(at, 3)))
        at += rng.expovariate(density.commands / 60)
    return steps


class _Faults:
    """Draws the faults; knows until when each process is busy with one."""

    def __init__(
        self,
        rng: Random,
        seconds: float,
        hosts: tuple[str, ...],
        operators: tuple[str, ...],
        density: Density,
    ) -> None:
        self._rng = rng
        self._end = seconds - _QUIET_END
        self._hosts = hosts
        self._operators = operators
        self._density = density
        self._busy = dict.fromkeys((*hosts, *operators), 0.0)
        self._steps: list[Step] = []
        self._decks: dict[str, list[Wide]] = {"outage": [], "other": []}
        self._outage_over = 0.0

    def draw(self) -> list[Step]:
        """All faults, in order of time."""
        singles = self._times(self._density.singles)
        outages = self._times(self._density.outages, "outage")
        wides = self._times(self._density.wides - self._density.outages, "other")
        for at, what in sorted(singles + outages + wides, key=lambda each: each[0]):
            if what == "single":
                self._single(at)
            else:
                self._wide(at, what)
        return self._steps

    def _times(self, a_minute: float, what: str = "single") -> list[tuple[float, str]]:
        """One time in each of equal spans: neither a long calm nor a heap."""
        count = max(1, round(a_minute * self._end / 60))
        span = self._end / count
        return [(round((number + self._rng.random()) * span, 3), what) for number in range(count)]

    def _single(self, at: float) -> None:
        rng, kills = self._rng, self._density.kills
        others: list[Single] = [kind for kind in SINGLE if kind != "kill"]
        weights = [_ARM_WEIGHT if kind == "arm" else 1 for kind in others]
        kind: Single = "kill" if rng.random() < kills else rng.choices(others, weights)[0]
        names = [name for role in (self._hosts, self._operators) for name in self._spare(role, at)]
        if not names:
            return
        target = rng.choice(names)
        if kind == "arm":
            self._arm(at, target)
            return
        seconds = round(self._seconds(kind, at), 3)
        self._steps.append(Step(at, kind, target, seconds))
        restarts = {"kill": 0.0, "terminate": 10.0}.get(kind)
        self._busy[target] = at + seconds + (0 if restarts is None else restarts + self._density.to_ready)

    def _seconds(self, kind: Single, at: float) -> float:
        low, high = {
            "kill": (0, 20),
            "terminate": (0, 20),
            "freeze": (3, 40),
            "slow": (5, 40),
            "rotate": (0, 1),
        }.get(kind, (3, 30))
        if kind == "kill":  # most come back soon, as under a kubelet without backoff
            high = self._rng.choice((2, 6, 20))
        return min(self._rng.uniform(low, high), max(3.0, self._end + _QUIET_END - at))

    def _arm(self, at: float, target: str) -> None:
        rng = self._rng
        operator = target in self._operators
        points = [point for point in CRASH_POINTS if _reachable(point, operator=operator)]
        action = rng.choices(("kill", "kill:2", "term", "stop", "wait"), (6, 2, 1, 2, 2))[0]
        seconds = round(rng.uniform(10, 25), 3)
        self._steps.append(Step(at, "arm", target, seconds, point=rng.choice(points), action=action))
        self._busy[target] = at + seconds + self._density.to_ready

    def _spare(self, role: tuple[str, ...], at: float) -> list[str]:
        """Who of a role may be hit: nobody, if too few would be left."""
        free = [name for name in role if self._busy[name] <= at]
        left = self._density.hosts_left if role == self._hosts else self._density.operators_left
        return free if len(free) > left else []

    def _wide(self, at: float, what: str) -> None:
        kind = self._next_wide(what)
        if kind in ("kill-apiserver", "kill-etcd", "answer-429", "answer-500"):
            seconds = round(self._rng.uniform(0, 12), 3)
            at = max(at, self._outage_over)  # one after the other
            if at >= self._end:
                return
            self._outage_over = at + seconds + self._density.to_ready
            self._steps.append(Step(at, kind, seconds=seconds))
        elif kind in ("roll-hosts", "roll-operators"):
            names = self._hosts if kind == "roll-hosts" else self._operators
            self._steps.append(Step(at, kind))
            for number, name in enumerate(names):
                lasts = (number + 1) * (2 + self._density.to_ready)
                self._busy[name] = max(self._busy[name], at + lasts)
        else:
            self._away(kind, at)

    def _away(self, kind: Wide, at: float) -> None:
        """Away over a whole minute; what had another fault before is taken along.

        Hosts that are only cut off may be so for longer than anybody waits for them.
        """
        action = self._rng.choice(
            ("kill", "terminate", "cut") if kind == "hosts-away" else ("kill", "terminate")
        )
        minute = (at // 60 + 1) * 60
        begin = minute - self._rng.uniform(1, 25)
        end = minute + self._rng.uniform(1, 45 if action == "cut" else 15)
        if begin < 0 or end > self._end:
            return
        self._steps.append(Step(round(begin, 3), kind, seconds=round(end - begin, 3), action=action))
        for name in self._hosts if kind == "hosts-away" else self._operators:
            self._busy[name] = max(self._busy[name], end + self._density.to_ready)

    def _next_wide(self, what: str) -> Wide:
        """Every kind comes once before one comes again."""
        deck = self._decks[what]
        if not deck:
            outage = what == "outage"
            deck += [kind for kind in WIDE if (kind in ("kill-apiserver", "kill-etcd")) == outage]
            self._rng.shuffle(deck)
        return deck.pop()


def _reachable(point: str, *, operator: bool) -> bool:
    """Whether a process of this role comes by this crash point."""
    write = point.partition(":")[2]
    if operator:
        return write in _OF_OPERATORS
    return write in _OF_HOSTS_TOO or write not in _OF_OPERATORS


def skews(seed: int, hosts: Sequence[str], operators: Sequence[str]) -> dict[str, float]:
    """By how many seconds the clock of one host and of one operator is off."""
    rng = Random(f"skews of {seed}")
    return {
        rng.choice(list(names)): rng.choice((-1, 1)) * round(rng.uniform(5, 90), 3)
        for names in (hosts, operators)
    }
