"""The client: opened when somebody needs it, shared while in use, closed when nobody does.

So a call works before `start` and after `stop` as well, and nothing is left open.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_kubernetes.settings import Settings

if TYPE_CHECKING:
    from astrabox_scheduler_client.api import SchedulerApi
    from astrabox_scheduler_client.connect import ConnectSettings

ROLE: Final = "provider"


class _Shared:
    """The client of one event loop."""

    def __init__(self) -> None:
        self.api: SchedulerApi | None = None
        self.users = 0
        self.changing = asyncio.Lock()


class Store:
    """Gives out the client of the running event loop; `clock` is common to all of them."""

    def __init__(self, settings: Settings, clock: ServerClock | None = None) -> None:
        self._settings = settings
        self._by_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, _Shared] = WeakKeyDictionary()
        self.clock = clock or ServerClock()

    @property
    def connect_settings(self) -> "ConnectSettings":
        """How to connect, for whoever needs a connection of its own."""
        return self._settings.connect

    @asynccontextmanager
    async def use(self) -> AsyncIterator["SchedulerApi"]:
        """The client, for as long as the context lasts. Raises ConnectError."""
        api = await self.acquire()
        try:
            yield api
        finally:
            await self.release()

    async def acquire(self) -> "SchedulerApi":
        """The client, until `release` is called as often. Raises ConnectError."""
        shared = self._by_loop.setdefault(asyncio.get_running_loop(), _Shared())
        async with shared.changing:
            if shared.api is None:
                shared.api = await self._open()
            shared.users += 1
            return shared.api

    async def release(self) -> None:
        """Give the client back; the last one closes it."""
        shared = self._by_loop[asyncio.get_running_loop()]
        # Counted before anything is awaited, so that a cancellation cannot leave it open for ever.
        shared.users -= 1
        if shared.users:
            return
        async with shared.changing:
            if not shared.users and shared.api is not None:
                api, shared.api = shared.api, None
                await api.aclose()

    async def _open(self) -> "SchedulerApi":
        from astrabox_scheduler_client.api import open_api  # noqa: PLC0415 - brings in aiohttp

        settings = self._settings
        return await open_api(
            self.connect_settings, settings.namespace, ROLE, self.clock, settings.request_timeout_seconds
        )
