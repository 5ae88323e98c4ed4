"""Requests to the API server as its administrator, or with any token, around all proxies."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Self

import aiohttp
import yaml

from tools.controlplane import Cluster

SCHEDULER_API = "/apis/scheduler.astrabox.io/v1"
_SECONDS = 20.0
_PATIENCE_SECONDS = 30.0
_FOR_A_MOMENT = (429, 500, 503, 504)


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, call: str, status: int, text: str) -> None:
        super().__init__(f"{call} answered {status}: {text[:500]}")
        self.status = status


class Admin:
    """One pool of connections; use it as a context manager."""

    def __init__(self, plane: Cluster) -> None:
        self.url = plane.url
        user = yaml.safe_load(plane.kubeconfig.read_text())["users"][0]["user"]
        self._token: str = user["token"]
        self.tls = ssl.create_default_context(cafile=str(plane.ca_file))
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self.tls), timeout=aiohttp.ClientTimeout(total=_SECONDS)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def status(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, token: str = "", url: str = ""
    ) -> int:
        """The code of the answer; raises aiohttp.ClientError or TimeoutError if there is none."""
        return (await self._answer(method, (url or self.url) + path, body, token))[0]

    async def call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The object of a successful answer. Raises RefusedError, aiohttp.ClientError or TimeoutError.

        A GET is repeated for a while: tests also ask while the API server is away.
        """
        deadline = time.monotonic() + (_PATIENCE_SECONDS if method == "GET" else 0.0)
        while True:
            try:
                code, text = await self._answer(method, self.url + path, body, "")
            except aiohttp.ClientError:
                if time.monotonic() > deadline:
                    raise
            else:
                if code < HTTPStatus.BAD_REQUEST:
                    answer: dict[str, Any] = json.loads(text)
                    return answer
                if code not in _FOR_A_MOMENT or time.monotonic() > deadline:
                    raise RefusedError(f"{method} {path}", code, text)
            await asyncio.sleep(0.1)

    async def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """POST."""
        return await self.call("POST", path, body)

    async def delete(self, path: str) -> None:
        """DELETE; nothing to do if it is not there."""
        try:
            await self.call("DELETE", path)
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    async def items(self, namespace: str, plural: str, api: str = SCHEDULER_API) -> list[dict[str, Any]]:
        """All objects of a resource, by default one of ours."""
        found = await self.call("GET", f"{api}/namespaces/{namespace}/{plural}")
        items: list[dict[str, Any]] = found["items"]
        return items

    async def _answer(
        self, method: str, url: str, body: Mapping[str, Any] | None, token: str
    ) -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token or self._token}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        async with self._session.request(method, url, data=data, headers=headers) as response:
            return response.status, await response.text()
