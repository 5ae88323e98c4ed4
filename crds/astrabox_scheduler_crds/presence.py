"""Who is there now, and who was there at a due time: read from Leases, decided without IO.

*Now* is judged by this process's own monotonic clock since it last saw the Lease change; two
machines' clocks are not compared. *At a due time* is read from the Lease's interval of acquire and
renew time, which its process wrote in API server time.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from astrabox_scheduler_crds.lease import Lease

STALE_AT_FIRST_SIGHT = timedelta(minutes=1)
"""A Lease seen for the first time whose last renewal is older than its duration and this is not live."""


@dataclass(frozen=True, slots=True)
class _Seen:
    lease: Lease
    version: str | None
    changed: float  # monotonic seconds
    stale: bool


@dataclass(frozen=True, slots=True)
class Presence:
    """The Leases of one role at one moment."""

    leases: tuple[Lease, ...]
    live: frozenset[str]

    @property
    def assignable(self) -> frozenset[str]:
        """The live ones that take new runs: all but those that are stopping."""
        return self.live - {lease.metadata.name for lease in self.leases if lease.draining}

    def proves(self, instant: datetime) -> bool:
        """Whether some process has shown, by a later renewal, that it was there at the aware `instant`."""
        return self.touches(instant, instant)

    def touches(self, first: datetime, last: datetime) -> bool:
        """Whether `proves` may be true of some instant in [first, last]: not of any if this is False."""
        return any(_overlaps(lease, first, last) for lease in self.leases)

    def covers(self, instant: datetime) -> bool:
        """Whether some process was there at the aware `instant`, as far as can be told now.

        A live one counts up to a Lease's duration after its last renewal: it is there, or was killed
        so lately that nobody can know. Later renewals turn that into proof, or do not come.
        """
        return self.proves(instant) or any(
            _lasts(lease, instant) for lease in self.leases if lease.metadata.name in self.live
        )


class PresenceObserver:
    """Keeps what was last seen of each Lease."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def observe(self, leases: Iterable[Lease], monotonic: float, now: datetime) -> None:
        """Take in a whole list: at `monotonic` seconds of this process, `now` in API server time."""
        self._seen = {lease.metadata.name: self._look(lease, monotonic, now) for lease in leases}

    def _look(self, lease: Lease, monotonic: float, now: datetime) -> _Seen:
        version = lease.metadata.resource_version
        old = self._seen.get(lease.metadata.name)
        if old is not None and old.version == version:
            return replace(old, lease=lease)
        return _Seen(lease, version, monotonic, stale=old is None and _long_expired(lease, now))

    def presence(self, role: str, monotonic: float) -> Presence:
        """The Leases of `role` as of `monotonic` seconds."""
        seen = [each for each in self._seen.values() if each.lease.role == role]
        live = frozenset(each.lease.metadata.name for each in seen if _is_live(each, monotonic))
        return Presence(tuple(each.lease for each in seen), live)


def _overlaps(lease: Lease, first: datetime, last: datetime) -> bool:
    acquired, renewed = lease.spec.acquire_time, lease.spec.renew_time
    return acquired is not None and renewed is not None and acquired <= last and first <= renewed


def _lasts(lease: Lease, instant: datetime) -> bool:
    """Whether it reaches the instant with the duration that it was given by its last renewal."""
    acquired, renewed = lease.spec.acquire_time, lease.spec.renew_time
    if acquired is None or renewed is None:
        return False
    return acquired <= instant and instant - renewed <= timedelta(seconds=lease.spec.lease_duration_seconds)


def _is_live(seen: _Seen, monotonic: float) -> bool:
    lease = seen.lease
    return (
        not lease.released and not seen.stale and monotonic - seen.changed < lease.spec.lease_duration_seconds
    )


def _long_expired(lease: Lease, now: datetime) -> bool:
    renewed = lease.spec.renew_time
    duration = timedelta(seconds=lease.spec.lease_duration_seconds)
    return renewed is not None and now - renewed > duration + STALE_AT_FIRST_SIGHT
