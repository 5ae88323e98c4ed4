"""Every point at which a host can be ended, how it is brought there, and which calls are made in all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tests.faults.stage.points import NAMES, STEPS

Calls = tuple[int, int]
"""How often start_session and admit_turn begin, all hosts together."""

OF_OPERATORS: Final = frozenset({"event", "lease-deleted", "run-deleted", "schedule-status"})
"""Writes that a host never makes."""

HOW: Final = (
    ("access-review", "start"),
    ("lease-created", "start"),
    ("schedule-removed", "erase"),
    ("schedule-created", "create"),
    ("schedule-updated", "update"),
    ("schedule-deleted", "bury"),
    ("lease-renewed", "hold"),
    ("lease-draining", "stop"),
    ("lease-released", "stop"),
    ("attempt-released", "stop"),
    ("run-released", "stop"),
    ("run-created", "run"),
    ("attempt-begun", "run"),
    ("start_session", "run"),
    ("session-saved", "run"),
    ("admit_turn", "run"),
    ("turn-saved", "run"),
    ("failure-saved", "fail"),
    ("run-adopted", "adopt"),
    ("run-cancelled", "cancel"),
)
"""Each point, and what brings a host there: see `test_crash_points`."""
HOLDING: Final = frozenset({"erase", "create", "update", "bury", "hold", "stop"})
"""Ways on which the host has a run in a call that hangs."""

_KILLED: Final[dict[str, Calls]] = {
    "before:run-created": (0, 0),
    "before:run-cancelled": (0, 0),
    "after:run-cancelled": (0, 0),
    "after:start_session": (2, 1),
    "before:session-saved": (2, 1),
    "after:admit_turn": (1, 2),
    "before:turn-saved": (1, 2),
    "before:failure-saved": (2, 1),
    "after:failure-saved": (2, 1),
}
"""Other than one call of each."""


@dataclass(frozen=True, slots=True)
class Place:
    """One point, and the host that is ended there."""

    number: int
    point: str
    how: str

    @property
    def victim(self) -> str:
        return f"victim-{self.number}"

    def calls(self, action: str) -> Calls:
        """What there has to be in the end if the host is ended here by `action`, kill or term."""
        if self.how in HOLDING:
            return (2, 1)  # the call in progress is cut off, or cancelled by the stop
        if action == "kill":
            return _KILLED.get(self.point, (1, 1))
        return {"cancel": (0, 0), "fail": (2, 1)}.get(self.how, (1, 1))


PLACES: Final = tuple(
    Place(number, f"{side}:{name}", how)
    for number, (name, how, side) in enumerate(
        ((name, how, side) for name, how in HOW for side in ("before", "after")), 1
    )
)


def uncovered() -> set[str]:
    """Points that neither the table has nor only operators pass; and those that are no points any more."""
    return (set(NAMES | STEPS) - OF_OPERATORS) ^ {name for name, _ in HOW}
