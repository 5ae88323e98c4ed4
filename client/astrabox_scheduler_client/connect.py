"""A connection to the API server whose credentials may be replaced while it is used."""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import aiohttp

from astrabox_scheduler_client.endpoint import Endpoint, Loader
from astrabox_scheduler_client.errors import ConnectError
from astrabox_scheduler_client.incluster import in_cluster, load_in_cluster
from astrabox_scheduler_client.kubeconfig import load_kubeconfig

_LOG = logging.getLogger(__name__)
_RELOAD_SECONDS: Final = 60.0
"""A pod's token is replaced long before it ends; reading it this often never meets a 401."""


@dataclass(frozen=True, slots=True)
class ConnectSettings:
    """Which cluster. Without a kubeconfig: the pod's own, else KUBECONFIG, else `~/.kube/config`."""

    kubeconfig: str | None = None
    context: str | None = None


class Connection:
    """Address, pooled session and credentials of one API server, for one event loop."""

    def __init__(self, endpoint: Endpoint, load: Loader, reload_seconds: float | None = None) -> None:
        """`reload_seconds`: read the configuration again after so long even if nobody was refused.

        Raises ConnectError for TLS files that cannot be used.
        """
        self._endpoint = endpoint
        self._load = load
        self._reload_seconds = reload_seconds
        self._session = _session(endpoint)
        self._retired: aiohttp.ClientSession | None = None
        self._lock = asyncio.Lock()
        self._read_at = time.monotonic()
        self.generation = 0
        """Counts the changes of the configuration."""

    @property
    def base_url(self) -> str:
        """Scheme, host and port, without a slash at the end."""
        return self._endpoint.base_url

    @property
    def namespace(self) -> str:
        """The namespace that the configuration names, else `default`."""
        return self._endpoint.namespace

    @property
    def session(self) -> aiohttp.ClientSession:
        """The pool in use now; ask again for each request."""
        return self._session

    @property
    def options(self) -> Mapping[str, Any]:
        """Arguments that each request of the session needs."""
        return {"proxy": self._endpoint.proxy, "server_hostname": self._endpoint.tls.server_name}

    async def auth_headers(self) -> Mapping[str, str]:
        """The headers that say who we are; nothing with a client certificate."""
        read_at = self._read_at
        if self._reload_seconds is not None and time.monotonic() - read_at >= self._reload_seconds:
            await self.refresh(since=read_at)  # of many callers one reads
        authorization = self._endpoint.authorization
        return {} if authorization is None else {"Authorization": authorization}

    async def refresh(self, since: float | None = None) -> bool:
        """Read the configuration again; True if it differs from what it was.

        `since`, monotonic seconds: enough if somebody else did after that. A configuration that
        cannot be read (just being replaced) keeps the old one; it is logged.
        """
        before = self.generation
        async with self._lock:
            if since is not None and self._read_at > since:
                return True
            begun = time.monotonic()
            try:
                endpoint = await self._load()
                if not endpoint.same_route(self._endpoint):
                    await self._replace_session(_session(endpoint))
            except ConnectError as error:
                _LOG.warning("credentials could not be read again: %s", error)
            else:
                self.generation += endpoint != self._endpoint
                self._endpoint = endpoint
            self._read_at = begun
        return self.generation != before

    async def close(self) -> None:
        """Close every connection; may be called twice."""
        for session in (self._session, self._retired):
            if session is not None:
                await session.close()

    async def _replace_session(self, session: aiohttp.ClientSession) -> None:
        # The old one stays until the next change, so that requests in flight end in peace.
        if self._retired is not None:
            await self._retired.close()
        self._retired, self._session = self._session, session


async def connect(settings: ConnectSettings = ConnectSettings()) -> Connection:
    """Read the configuration and make a connection; nothing is sent yet. Raises ConnectError."""
    if settings.kubeconfig is None and settings.context is None and in_cluster():
        return Connection(await load_in_cluster(), load_in_cluster, _RELOAD_SECONDS)
    load = partial(load_kubeconfig, settings.kubeconfig, settings.context)
    return Connection(await load(), load)


def _session(endpoint: Endpoint) -> aiohttp.ClientSession:
    try:
        return endpoint.session()
    except (OSError, ValueError) as error:
        raise ConnectError(
            f"the TLS files for {endpoint.base_url} cannot be used ({type(error).__name__}):"
            " check CA, certificate and key"
        ) from error
