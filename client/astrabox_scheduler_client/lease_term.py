"""What a process may believe about its own Lease: pure, with every time passed in.

A *lapse* is a time without a renewal that was long enough for others to take over: what was begun
before it must not go on. A *term* is a stretch of time in which the process was there without a gap,
lapses included: while the API server was away the process was there all the same. It has one Lease
object of its own, whose interval [acquireTime, renewTime] stays readable when the term is over: the
first term's Lease is named after the identity, the following ones `<identity>-2`, `<identity>-3`.
"""

import math
import re
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from threading import Lock
from typing import Final

from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.lease import Lease, LeaseSpec, Role
from astrabox_scheduler_crds.metadata import ObjectMeta

MAX_IDENTITY_LENGTH: Final = 56
"""A Lease's name is the value of the assignee label (63 characters), and a term's number comes behind."""
_IDENTITY: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", re.ASCII)
_MAX_JITTER: Final = 0.2
# Linux' CLOCK_MONOTONIC stands still while a host sleeps or a virtual machine is paused.
_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class Renewal:
    """What to write: `number` is the term it belongs to, `lease` has a resource version once it exists."""

    number: int
    lease: Lease

    def on_top_of(self, found: ObjectMeta) -> "Renewal":
        """The same on top of what is stored now."""
        metadata = self.lease.metadata.changed(uid=found.uid, resource_version=found.resource_version)
        return Renewal(self.number, self.lease.changed(metadata=metadata))

    def recreated(self) -> "Renewal":
        """The same for a Lease that was deleted: its acquire time stays, since the term has no gap."""
        return self.on_top_of(ObjectMeta())

    def adopting(self, found: Lease) -> "Renewal | None":
        """The same for a Lease that is there: ours, from a create whose answer was lost; else None.

        One that ran out since is left alone, so that its interval does not grow over a gap.
        """
        acquired, renewed = found.spec.acquire_time, found.spec.renew_time
        now, spec = self.lease.spec.renew_time, self.lease.spec
        if found.spec.holder_identity != spec.holder_identity or renewed is None or now is None:
            return None
        if now - renewed >= timedelta(seconds=found.spec.lease_duration_seconds):
            return None
        adopted = self.lease.changed(spec=spec.changed(acquire_time=acquired))
        return Renewal(self.number, adopted).on_top_of(found.metadata)


class LeaseTerm:
    """Counts terms and lapses. Safe to share by threads; monotonic times in seconds, `now` aware UTC."""

    def __init__(self, identity: str, role: Role, duration: float) -> None:
        """Raises ValueError for an identity that is no DNS label of at most 56 characters."""
        if len(identity) > MAX_IDENTITY_LENGTH or not _IDENTITY.fullmatch(identity):
            raise ValueError(
                f"a Lease's identity is a DNS label of at most {MAX_IDENTITY_LENGTH} characters: {identity!r}"
            )
        self._identity = identity
        self._role: Role = role
        self._duration = duration
        self._lock = Lock()
        self._number = 1
        self._lapses = 0
        self._valid_until: float | None = None
        self._alive_at: float | None = None
        self._stored: Lease | None = None
        self._ended: list[Lease] = []
        self._draining = False

    @property
    def name(self) -> str:
        """Name of the current term's Lease."""
        with self._lock:
            return self._name()

    def held(self, monotonic: float) -> bool:
        """Whether the Lease is surely ours at `monotonic`."""
        return self.left(monotonic) > 0.0

    def left(self, monotonic: float) -> float:
        """Seconds for which it is surely ours without another renewal."""
        with self._lock:
            self._expire(monotonic)
            return 0.0 if self._valid_until is None else self._valid_until - monotonic

    def lapses(self, monotonic: float) -> int:
        """How often the Lease had been lost by `monotonic`, a loss that nobody noticed so far included."""
        with self._lock:
            self._expire(monotonic)
            return self._lapses

    def acquired(self, monotonic: float) -> datetime | None:
        """Since when this process is there without a gap (aware UTC); None while it is not held."""
        with self._lock:
            self._expire(monotonic)
            if self._valid_until is None or self._stored is None:
                return None
            return self._stored.spec.acquire_time

    def drain(self) -> None:
        """From the next renewal on the Lease says that its process is stopping."""
        self._draining = True

    def renewal(self, monotonic: float, now: datetime) -> Renewal:
        """The Lease to write next. A new term is acquired `now`, a running one keeps its acquire time.

        To be called more often than once in the Lease's duration: a longer gap means that this
        process, or its event loop, stood still, and ends the term.
        """
        with self._lock:
            self._notice_gap(monotonic)
            if self._stored is not None:
                spec = self._stored.spec.changed(renew_time=now, holder_identity=self._identity)
                metadata = self._stored.metadata.changed(labels=self._labels())
                return Renewal(self._number, self._stored.changed(metadata=metadata, spec=spec))
            metadata = ObjectMeta(name=self._name(), labels=self._labels())
            spec = LeaseSpec(
                holder_identity=self._identity,
                lease_duration_seconds=math.ceil(self._duration),
                acquire_time=now,
                renew_time=now,
            )
            return Renewal(self._number, Lease(metadata=metadata, spec=spec))

    def renewed(self, renewal: Renewal, stored: ObjectMeta, begun: float, monotonic: float) -> bool:
        """Take in that `renewal` was stored by a request begun at `begun`, answered by `monotonic`.

        False if its term was over by then: the answer proves nothing about the present.
        """
        lease = renewal.on_top_of(stored).lease
        with self._lock:
            self._notice_gap(monotonic)
            if renewal.number != self._number:
                self._ended = [each for each in self._ended if each.metadata.name != lease.metadata.name]
                self._ended.append(lease)
                return False
            self._stored = lease
            self._valid_until = begun + self._duration
            self._expire(monotonic)
            return self._valid_until is not None

    def skip_name(self, renewal: Renewal) -> None:
        """Leave the name of this renewal to a Lease that is there and not ours."""
        with self._lock:
            if renewal.number == self._number:
                self._number += 1
                self._stored, self._valid_until = None, None

    def take_ended(self) -> list[Lease]:
        """Leases of terms that are over and still name a holder; each is given out once."""
        with self._lock:
            ended, self._ended = self._ended, []
            return ended

    def end(self, monotonic: float, now: datetime) -> Lease | None:
        """End the term in order; its last Lease without a holder, None where there is none.

        Renewed up to `now` only if the term reaches until now.
        """
        with self._lock:
            self._notice_gap(monotonic)
            stored, self._stored, self._valid_until = self._stored, None, None
        if stored is None:
            return None
        return stored.changed(spec=stored.spec.changed(renew_time=now, holder_identity=None))

    def _labels(self) -> dict[str, str]:
        marks = {labels.ROLE_LABEL: str(self._role)}
        return marks | {labels.DRAINING_LABEL: "true"} if self._draining else marks

    def _name(self) -> str:
        return self._identity if self._number == 1 else f"{self._identity}-{self._number}"

    def _expire(self, monotonic: float) -> None:
        if self._valid_until is None or monotonic < self._valid_until:
            return
        self._valid_until = None
        self._lapses += 1

    def _notice_gap(self, monotonic: float) -> None:
        self._expire(monotonic)
        if self._alive_at is not None and monotonic - self._alive_at >= self._duration:
            self._number += 1
            if self._stored is not None:
                self._ended.append(self._stored)
            self._stored = None
        self._alive_at = monotonic


def monotonic() -> float:
    """Seconds of a clock that also counts while this process or the whole host is suspended."""
    return time.clock_gettime(_CLOCK)


def seconds_to_next(timestamp: float, period: float, jitter: float) -> float:
    """Seconds from `timestamp` to the next whole multiple of `period` plus `jitter`; more than 0.

    On whole multiples, so that a Lease is renewed right after each minute at which something is due.
    """
    turn = math.floor((timestamp - jitter) / period) + 1
    return turn * period + jitter - timestamp


def jitter_of(identity: str) -> float:
    """A fixed share of 0.2 s, so that many processes do not renew in the same instant."""
    return Random(identity).uniform(0, _MAX_JITTER)  # noqa: S311 - it spreads load, it hides nothing
