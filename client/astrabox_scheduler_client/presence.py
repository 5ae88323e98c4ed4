"""Keeps a PresenceObserver fed with the Leases that are there."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from astrabox_scheduler_client.errors import ApiError
from astrabox_scheduler_client.leases import Leases
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.lease import Role
from astrabox_scheduler_crds.presence import PresenceObserver
from astrabox_scheduler_crds.server_clock import ServerClock

POLL_SECONDS: Final = 2.0
MAX_GAP_SECONDS: Final = 10.0
"""Without a list for longer, the API server may have been away for the others too."""
_LOG = logging.getLogger(__name__)


class PresencePoller:
    """Lists the Leases of `roles` every `period` seconds, and whenever `refresh` is called.

    Errors do not stop it; `age` tells how old its knowledge is.
    """

    def __init__(
        self,
        leases: Leases,
        observer: PresenceObserver,
        clock: ServerClock,
        roles: Sequence[Role] = ("provider",),
        period: float = POLL_SECONDS,
    ) -> None:
        self._leases = leases
        self._observer = observer
        self._clock = clock
        self._selector = f"{labels.ROLE_LABEL} in ({','.join(roles)})"
        self._period = period
        self._listed: float | None = None
        self._steady_since: float | None = None
        self._failing = False
        self._listing = asyncio.Lock()

    async def refresh(self) -> None:
        """List now. Raises ApiError. After it the observer knows every Lease that was there at the call."""
        # One at a time: an older list must never be taken in after a newer one.
        async with self._listing:
            begun = self._clock.monotonic()
            if self._listed is not None and begun - self._listed > MAX_GAP_SECONDS:
                self._steady_since = None
            leases = await self._leases.list(self._selector)
            self._observer.observe(leases, self._clock.monotonic(), self._clock.now())
            self._listed = begun
            if self._steady_since is None:
                self._steady_since = begun

    def age(self) -> float | None:
        """Seconds since the last successful list was begun, None before the first."""
        return None if self._listed is None else self._clock.monotonic() - self._listed

    def steady_for(self) -> float:
        """Seconds since which the lists succeed without a gap of more than 10 s; 0 while they do not.

        After an outage of the API server the others need a moment to renew their Leases: until then
        a Lease that ran out says nothing.
        """
        now = self._clock.monotonic()
        if self._steady_since is None or self._listed is None or now - self._listed > MAX_GAP_SECONDS:
            return 0.0
        return now - self._steady_since

    async def first(self) -> None:
        """Return once a list has succeeded."""
        while True:
            if await self._poll():
                return
            await asyncio.sleep(self._period)

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await self._poll()
            await asyncio.sleep(self._period)

    async def _poll(self) -> bool:
        try:
            await self.refresh()
        except ApiError as error:
            self._changed(failing=True, detail=str(error))
            return False
        self._changed(failing=False, detail="")
        return True

    def _changed(self, *, failing: bool, detail: str) -> None:
        if failing and not self._failing:
            _LOG.warning("Leases cannot be listed, going on with what is known: %s", detail)
        elif self._failing and not failing:
            _LOG.info("Leases can be listed again")
        self._failing = failing
