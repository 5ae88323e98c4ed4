"""How to confirm the schedules of a burst: one list for all of them, or one read for each.

A few are read one by one, so that one whose read fails or is slow holds up no other. A list of ten
thousand schedules costs 0.3 s of CPU on either side; while it is under way nothing is created, and two
seconds later it is needed again. So it pays only while it is quick; above that, too, every create has a
read of its own, begun just before it.
"""

from collections.abc import Collection
from typing import Final, Protocol

from astrabox_scheduler_client.confirm import ONE_BY_ONE, Confirmed
from astrabox_scheduler_crds.server_clock import ServerClock

QUICK_SECONDS: Final = 0.5
_SECONDS_PER_LISTED: Final = 60e-6
_FORGETTING: Final = 0.9


class Confirms(Protocol):
    """Proof that schedules are there and enabled."""

    async def versions(self, names: Collection[str]) -> Confirmed:
        """What a read begun at most two seconds ago shows. Raises ApiError."""
        ...


class ConfirmChoice:
    """Remembers how long the latest list took, and forgets it slowly."""

    def __init__(self, confirm: Confirms, clock: ServerClock) -> None:
        self._confirm = confirm
        self._clock = clock
        self._took = 0.0

    async def shared(self, names: Collection[str], stored: int) -> Confirmed | None:
        """One confirmation for all of `names`, None if each is to be confirmed by `single`.

        `stored` schedules are in the namespace. Raises ApiError.
        """
        if len(names) <= ONE_BY_ONE:
            return None
        if max(self._took, stored * _SECONDS_PER_LISTED) > QUICK_SECONDS:
            self._took *= _FORGETTING
            return None
        begun = self._clock.monotonic()
        self._took = QUICK_SECONDS / _FORGETTING**2  # what stays if it fails
        confirmed = await self._confirm.versions(names)
        self._took = self._clock.monotonic() - begun
        return confirmed

    async def single(self, name: str) -> Confirmed:
        """A confirmation of one. Raises ApiError."""
        return await self._confirm.versions((name,))
