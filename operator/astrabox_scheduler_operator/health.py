"""`/healthz`, `/readyz` and `/metrics`: what they say is computed when they are asked."""

import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Final, Self

from aiohttp import web

from astrabox_scheduler_operator.settings import PREFIX

STALE_SECONDS: Final = 45.0
"""Age at which a loop that should have gone round counts as dead."""
_SHUTDOWN_SECONDS: Final = 1.0
HEALTH_STOP_SECONDS: Final = 2 * _SHUTDOWN_SECONDS
"""A request that is being answered gets this time to end, and again after it was cancelled."""
_LOG = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Complaints = Callable[[], Sequence[str]]
"""Short sentences, empty when all is well."""


class HealthServer:
    """Serves while it is entered; `port` is the one in use."""

    def __init__(
        self, host: str, port: int, *, alive: Complaints, ready: Complaints, metrics: Callable[[], bytes]
    ) -> None:
        self._host = host
        self.port = port
        self._app = web.Application()
        self._app.router.add_get("/healthz", _answer(alive))
        self._app.router.add_get("/readyz", _answer(ready))
        self._app.router.add_get("/metrics", _exposition(metrics))
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Listen. Raises OSError, which says what to set."""
        runner = web.AppRunner(
            self._app, access_log=None, handle_signals=False, shutdown_timeout=_SHUTDOWN_SECONDS
        )
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        try:
            await web.TCPSite(runner, self._host, self.port).start()
        except OSError as error:
            await self._stack.aclose()
            raise OSError(
                f"{self._host}:{self.port} cannot be listened at for health and metrics "
                f"({error.strerror or error}): set {PREFIX}HEALTH_PORT to a free port, 0 for any, or "
                f"{PREFIX}HEALTH_HOST to an address of this machine"
            ) from error
        self.port = runner.addresses[0][1]
        _LOG.info("health is served", extra={"host": self._host, "port": self.port})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()


def stale(what: str, last: float | None, now: float, limit: float = STALE_SECONDS) -> Sequence[str]:
    """A complaint if `what` was last done more than `limit` monotonic seconds ago, or never."""
    if last is not None and now - last <= limit:
        return ()
    age = "never completed" if last is None else f"last completed {now - last:.0f} s ago"
    return (f"{what}: {age}",)


def _answer(complaints: Complaints) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        told = complaints()
        return web.Response(status=503 if told else 200, text="\n".join(told or ("ok",)) + "\n")

    return handler


def _exposition(metrics: Callable[[], bytes]) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.Response(
            body=metrics(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    return handler
