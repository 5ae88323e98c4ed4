"""What AstraBox is asked for during a plan, drawn from a seed."""

from __future__ import annotations

import string
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from tests.faults.mix.steps import Step, Workload

ZONES: Final = ("Etc/UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns", "Australia/Lord_Howe")
_WEIGHTS: Final[tuple[tuple[Workload, int], ...]] = (
    ("run-now", 24),
    ("edit-payload", 14),
    ("edit-cron", 14),
    ("disable", 10),
    ("enable", 10),
    ("delete", 8),
    ("recreate", 8),
    ("create", 6),
    ("replay", 8),
    ("reconcile", 8),
)


@dataclass(slots=True)
class _Known:
    """What a Deployment would be if every command so far had been done."""

    id: str
    cron: str
    zone: str
    state: str = "enabled"


class WorkloadDraw:
    """Draws one command after the other; a command only names a Deployment that it makes sense for."""

    def __init__(self, rng: Random, hosts: tuple[str, ...]) -> None:
        self._rng = rng
        self._hosts = hosts
        self._known: list[_Known] = []

    def create(self, at: float) -> Step:
        """A Deployment under an id of its own."""
        known = _Known(_deployment_id(self._rng, len(self._known)), _cron(self._rng), self._rng.choice(ZONES))
        self._known.append(known)
        return self._applied("create", known, at)

    def draw(self, at: float) -> Step:
        """One command."""
        kinds, weights = zip(*_WEIGHTS, strict=True)
        kind: Workload = self._rng.choices(kinds, weights)[0]
        if kind == "create":
            return self.create(at)
        if kind == "reconcile":
            return Step(at, kind, pick=self._pick())
        wanted = {"enable": "disabled", "recreate": "deleted"}.get(kind, "enabled")
        eligible = [each for each in self._known if each.state == wanted]
        if not eligible:
            return self.create(at)
        return self._change(kind, self._rng.choice(eligible), at)

    def _change(self, kind: Workload, known: _Known, at: float) -> Step:
        if kind in ("run-now", "replay"):
            payload = self._payload(at, strange=True) if kind == "run-now" else {}
            return Step(at, kind, known.id, pick=self._pick(), payload=payload)
        if kind == "edit-cron":
            known.cron, known.zone = _cron(self._rng), self._rng.choice(ZONES)
        known.state = {"disable": "disabled", "delete": "deleted"}.get(kind, "enabled")
        return self._applied(kind, known, at)

    def _applied(self, kind: Workload, known: _Known, at: float) -> Step:
        payload = self._payload(at, strange=False)
        return Step(at, kind, known.id, pick=self._pick(), cron=known.cron, zone=known.zone, payload=payload)

    def _pick(self) -> int:
        return self._rng.randrange(1000)

    def _payload(self, at: float, *, strange: bool) -> dict[str, Any]:
        """With `strange` also calls that block a host or kill it, whose number is to stay bounded."""
        draw, rng = self._rng.random(), self._rng
        payload: dict[str, Any] = {
            "prompt": f"at {at:.3f} \N{HEAVY CHECK MARK} {rng.randrange(10**9)}",
            "temperature": rng.choice((0, 1.0, 0.7)),
            "nested": {"zone": None, "list": [True, {"n": rng.randrange(100)}]},
        }
        step = rng.choice(("start_session", "admit_turn"))
        if draw < 0.6:
            return payload
        if strange and draw < 0.7:
            how = {step: "kill", "host": rng.choice(self._hosts)}
        elif strange and draw < 0.77:
            how = {step: f"block:{rng.randint(3, 20)}"}
        elif draw < 0.86:
            how = {step: f"hang:{rng.randint(10, 40)}"}
        elif draw < 0.96:
            how = {step: f"fail:{rng.randint(1, 2)}"}
        else:
            how = {step: "permanent"}
        return payload | {"behaviour": how}


def _deployment_id(rng: Random, number: int) -> str:
    """An id of one of several shapes; most are no DNS labels."""
    digits = "".join(rng.choice("0123456789abcdef") for _ in range(32))
    letters = "".join(rng.choice(string.ascii_letters) for _ in range(6))
    shapes = (
        digits,
        f"nightly-{number}",
        f"Report {letters} / {number}",
        f"team.{letters.lower()}.{number}",
        f"\N{LATIN SMALL LETTER U WITH DIAERESIS}ber-{letters}-\N{GREEK SMALL LETTER OMEGA}{number}",
        f"-{letters}_{number}-",
        f"{'long' * 40}-{digits}",
        f"{digits}{letters.lower()}{number:02}"[:40],
    )
    return shapes[rng.randrange(len(shapes))]


def _cron(rng: Random) -> str:
    """Due every minute, every second or third, or in about half of all."""
    draw = rng.random()
    if draw < 0.5:
        return "* * * * *"
    if draw < 0.7:
        return f"*/{rng.choice((2, 3))} * * * *"
    minutes = sorted(rng.sample(range(60), 30))
    return f"{','.join(map(str, minutes))} * * * *"
