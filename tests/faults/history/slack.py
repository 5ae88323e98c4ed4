"""What is allowed on top of the bounds, with the reasons: no correct program must ever be accused."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slack:
    """All in seconds, but for the last five."""

    clock: float = 1.0
    """Objects carry whole seconds, and processes know the API server's time no better than that."""
    answer: float = 1.0
    """The audit log notes the end of a request after its answer was sent, so a reaction can come before."""
    late: float = 5.0
    """From a due time on, a run that comes later is a late one. Half of them come well within a second."""
    load: float = 20.0
    """How long anything may take longer on a machine that runs a control plane and all processes at once."""
    recovery: float = 20.0
    """From the end of a fault until watches, Leases and repeated requests of a process are in order again."""
    longest_pause: float = 30.0
    """Between two tries of an operator to create a run that failed; grows with the length of the fault."""
    request_timeout: float = 10.0
    """A request that was swallowed is given up after this."""
    straggle: float = 60.0
    """So long after its process has given it up, or has ended, a request may still be carried out."""
    proof: float = 3.0
    """On top of the renew period: until a process has surely shown once more that it is there."""
    settle: float = 20.0
    """How long an operator waits for a process that it cannot see yet."""
    doubt: float = 30.0
    """How often an operator looks for runs that are too old to be started by anybody."""
    hand_edit: float = 30.0
    """A rule that a hand has written holds from when an operator has seen it; a missed watch costs that."""
    thaw: float = 2.0
    """A call that begins so soon after SIGCONT rests on a check that was made before SIGSTOP."""
    retry: float = 1.0
    """By how much a wait between attempts may fall short: two processes may differ about the time."""
    confirm: float = 4.0
    """A run may carry the payload of a read that began so long before its create."""
    few: int = 8
    """Of fewer due times nothing is said about how late they are as a rule."""
    crowd: int = 100
    """Schedules that are due at one moment and fired at it; with more the last ones have to wait."""
    given: float = 3.0
    """Of two commands under way at once the one given so much later is known to be: clocks differ."""
    concurrency: int = 50
    """Calls in progress in one host; with so many another run has to wait."""
    ledger_limit: int = 200
    """Rows that were asked for when the ledgers were read."""
    foreign_writers: frozenset[str] = frozenset({"admin"})
    """Whose writes are those of a hand: nothing is promised about them."""
