"""When an operator steps down that holds its Lease and gets nothing through: decided without IO.

All times are monotonic seconds. An operator that cannot be told from a healthy one by its Lease keeps
its share from the others, so it has to see by itself that it does not get on.
"""

from collections.abc import Set as AbstractSet
from typing import Final

STEP_DOWN_SECONDS: Final = 25.0
"""Something of its share was due for so long, and nothing was answered in time.

A try without an answer (10 s, the limit of a call), the pause after it (5 s) and a second try: one lost
connection is no reason to go. An API server that is away for everybody ends the Leases before (15 s).
"""
FIRST_STAYS_SECONDS: Final = 10.0
"""The first by name waits so much longer, so that of several with the same trouble one stays.

Longer than the others' release takes to be written (2 s) and to be seen (a Lease list every 2 s).
"""
GOT_ON_SECONDS: Final = 65.0
"""Due times are whole minutes: whoever had an answer in the last one gets on.

So a single schedule whose run cannot be created, by whomever, makes nobody step down who has others.
"""
PAUSE_SECONDS: Final = 60.0
"""Until an operator that has stepped down tries again, if others are there."""
_LONGEST_LOOK: Final = 2.0


class Patience:
    """`look` about every second, and ask `is_over`."""

    def __init__(self) -> None:
        self._stuck = 0.0
        self._looked: float | None = None

    def look(self, monotonic: float, *, held: bool, stuck: bool) -> None:
        """Take in whether something due is stuck. Only time in which the Lease is held counts.

        So an outage for everybody leaves time to get on after it, and a process that stood still
        counts what it saw, not what it slept.
        """
        since, self._looked = self._looked, monotonic
        if not stuck:
            self._stuck = 0.0
        elif held and since is not None:
            self._stuck += min(monotonic - since, _LONGEST_LOOK)

    def is_over(self, own: str, operators: AbstractSet[str], answered_ago: float | None) -> bool:
        """Whether `own`, one of the live `operators`, has to leave its share to the others.

        `answered_ago`: since something due was last answered in time, None if it never was.
        """
        if not operators - {own} or (answered_ago is not None and answered_ago < GOT_ON_SECONDS):
            return False
        return self._stuck >= STEP_DOWN_SECONDS + (FIRST_STAYS_SECONDS if own == min(operators) else 0.0)
