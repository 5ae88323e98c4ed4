"""Which providers and operators are there, as this process sees it."""

from dataclasses import dataclass
from typing import Protocol

from astrabox_scheduler_client.lease_keeper import LeaseKeeper
from astrabox_scheduler_client.presence import PresencePoller
from astrabox_scheduler_crds.assignment import owner
from astrabox_scheduler_crds.firing import PRESENCE_SETTLE
from astrabox_scheduler_crds.lease import LEASE_DURATION_SECONDS
from astrabox_scheduler_crds.presence import Presence, PresenceObserver
from astrabox_scheduler_crds.server_clock import ServerClock


class Attendance(Protocol):
    """What decisions need to know of the Leases; a test may play it."""

    @property
    def identity(self) -> str:
        """Name of our own Lease."""
        ...

    def held(self) -> bool:
        """Whether our own Lease is surely ours; without it nothing is fired."""
        ...

    def providers(self) -> Presence:
        """The providers."""
        ...

    def operators(self) -> frozenset[str]:
        """Names of the live operators, our own among them."""
        ...

    def steady(self) -> bool:
        """Whether the Leases have been seen for long enough that who is not among them is not there."""
        ...

    async def refresh(self) -> None:
        """Read all Leases now. Raises ApiError."""
        ...


class Sight(Attendance, Protocol):
    """What has to be known besides to tell an empty room from closed eyes."""

    def blind(self) -> bool:
        """Whether the last list of the Leases is so old that nobody else counts as live by it."""
        ...

    def seen_last(self) -> frozenset[str]:
        """Names of the operators that were live when the Leases were last listed, our own among them."""
        ...


@dataclass(frozen=True, slots=True)
class LeaseAttendance:
    """Attendance by the Leases in the API server."""

    keeper: LeaseKeeper
    poller: PresencePoller
    observer: PresenceObserver
    clock: ServerClock

    @property
    def identity(self) -> str:
        """Name of our own Lease."""
        return self.keeper.name

    def held(self) -> bool:
        """Whether our own Lease is surely ours."""
        return self.keeper.held()

    def providers(self) -> Presence:
        """The providers."""
        return self.observer.presence("provider", self.clock.monotonic())

    def operators(self) -> frozenset[str]:
        """Names of the live operators, our own among them."""
        return self.observer.presence("operator", self.clock.monotonic()).live | {self.keeper.name}

    def steady(self) -> bool:
        """Whether the Leases have been listed without a gap for PRESENCE_SETTLE."""
        return self.poller.steady_for() >= PRESENCE_SETTLE.total_seconds()

    def blind(self) -> bool:
        """Whether the last list of the Leases is so old that nobody else counts as live by it."""
        age = self.poller.age()
        return age is not None and age > LEASE_DURATION_SECONDS

    def seen_last(self) -> frozenset[str]:
        """Names of the operators that were live when the Leases were last listed, our own among them."""
        listed = self.clock.monotonic() - (self.poller.age() or 0.0)
        return self.observer.presence("operator", listed).live | {self.keeper.name}

    async def refresh(self) -> None:
        """Read all Leases now. Raises ApiError."""
        await self.poller.refresh()


def is_ours(item: str, attendance: Attendance) -> bool:
    """Whether `item` is this operator's share: every live operator comes to the same answer."""
    return owner(item, attendance.operators()) == attendance.identity
