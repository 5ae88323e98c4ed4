"""Periods that no operator needs to set; tests make them shorter."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from astrabox_scheduler_crds.lease import LEASE_DURATION_SECONDS, RENEW_PERIOD_SECONDS

_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Timing:
    """All in seconds."""

    lease_duration: float = LEASE_DURATION_SECONDS
    lease_period: float = RENEW_PERIOD_SECONDS
    beat: float = 1.0
    """How often the event loop says that it lives, and looks who else does."""
    presence: float = 2.0
    """How often the Leases of all providers are listed."""
    sweep: float = 10.0
    """How often runs are looked for that the watch did not bring or that have lost their process."""
    watch: int = 60
    """After so long the server ends a watch."""
    watch_idle: float = 75.0
    """After so long without a byte a watch is dead."""
    first_pause: float = 0.2
    longest_pause: float = 5.0
    """Between two tries of a call that failed; the pause doubles in between."""
    recheck: float = 1.0
    """Until a run is taken up again that could not be read or confirmed; the pause doubles from there."""
    settle: float = 8.0
    """How long a schedule's write without an answer is looked after before the caller is told."""
    recently: float = 60.0
    """A schedule applied so recently is left alone by `reconcile`: that snapshot may be older."""
    reconcile: float = 400.0
    """After so long a reconcile writes nothing more: its list is older than what tells it of deletions."""
    clocks: float = 2.0
    """By how much two processes may differ about the API server's time."""
    straggle: float = 60.0
    """Until then the API server may still carry out a write whose answer was lost."""
    cancelled: float = 1.0
    """How long a cancelled handler call gets to end."""
    hand_over: float = 3.0
    """How long a stop may take to write what it hands over."""
    stop_margin: float = 5.0
    """By how much a stop may exceed the time that runs in progress get."""


@dataclass(slots=True)
class Pauses:
    """Doubling pauses between tries; `next` honours what a server asks for."""

    timing: Timing
    _last: float = 0.0

    def next(self, asked: float | None = None) -> float:
        """Seconds to wait now."""
        self._last = min(max(self._last * 2, self.timing.first_pause), self.timing.longest_pause)
        return min(max(self._last, asked or 0.0), max(self.timing.longest_pause, self.timing.first_pause))

    def reset(self) -> None:
        """Begin again after a success."""
        self._last = 0.0


@dataclass(slots=True)
class SharedPauses:
    """Doubling pauses, from `recheck` on, of runs that could not be read or looked at before they began.

    Each is tried on at its own time, so that a bad one holds up no other; who fails while a pause lasts does
    not make the next one longer.
    """

    timing: Timing
    _pauses: Pauses = field(init=False)
    _pause: float = 0.0
    _until: datetime = _LONG_AGO

    def __post_init__(self) -> None:
        self._pauses = Pauses(replace(self.timing, first_pause=self.timing.recheck))

    def failed(self, now: datetime, asked: float | None) -> datetime:
        """When what failed `now` (aware UTC) is to be tried again; `asked`: the seconds a server asks for."""
        if now >= self._until:
            self._pause = self._pauses.next()
            self._until = now + timedelta(seconds=self._pause)
        asked = min(asked or 0.0, self.timing.longest_pause)
        return now + timedelta(seconds=max(self._pause, asked))

    def worked(self) -> None:
        """One of them got through: begin again."""
        self._pauses.reset()
        self._until = _LONG_AGO
