"""HTTP calls to the API server: bytes in, bytes out, each with a time limit and one kind of error."""

import asyncio
import io
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode

import aiohttp
from yarl import URL

from astrabox_scheduler_client.connect import Connection
from astrabox_scheduler_client.errors import ApiError, MalformedAnswer, Unreachable, error_of, is_write
from astrabox_scheduler_crds.server_clock import ServerClock

DEFAULT_TIMEOUT: Final = 10.0
MAX_LINE_BYTES: Final = 4 * 2**20
_LARGE_BODY_BYTES: Final = 2**20
_JSON: Final = "application/json"
# The request did not leave this process: a write with such an error was surely not carried out.
_NOT_SENT: Final = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)


class Transport:
    """Calls over one Connection; `timeout` in seconds is the limit of a whole call.

    `clock` is told the `Date` of every answer. `role` goes into the User-Agent.
    """

    def __init__(
        self,
        connection: Connection,
        clock: ServerClock,
        timeout: float = DEFAULT_TIMEOUT,
        role: str = "client",
    ) -> None:
        self._connection = connection
        self._timeout = timeout
        self._agent = f"astrabox-scheduler/{role}"
        self._date = ("", datetime.fromtimestamp(0, UTC))
        self.clock = clock

    @property
    def connection(self) -> Connection:
        """The connection; whoever made it closes it."""
        return self._connection

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: bytes | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
        timeout: float | None = None,  # noqa: ASYNC109 - a value of the transport, not of each caller
    ) -> bytes:
        """The body of the successful answer. Raises a member of ApiError for everything else.

        `path` is escaped already. A 401 reads the credentials again and repeats the call once; nothing
        else is repeated, 429 neither.
        """
        headers = {"Accept": accept, "User-Agent": self._agent}
        if body is not None:
            headers["Content-Type"] = content_type
        limit = self._timeout if timeout is None else timeout
        try:
            async with asyncio.timeout(limit):
                return await self._exchange(method, path, query, headers, body)
        except TimeoutError:
            text = f"{method} {path}: no answer within {limit:g} s"
        raise Unreachable(text, reason="Timeout", ambiguous=is_write(method))

    async def stream(
        self, path: str, query: Mapping[str, str], idle_timeout: float
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a long answer as they come; it ends when the server ends it.

        Raises Unreachable after `idle_timeout` seconds without a byte and when the connection is cut,
        MalformedAnswer for a line of more than 4 MiB or a last line without its end. Iterate it inside
        `contextlib.aclosing`: the response is closed with it.
        """
        response = await self._open_stream(path, query)
        pending = bytearray()
        try:
            while chunk := await _next_chunk(response, path, idle_timeout):
                searched = len(pending)
                pending += chunk
                begin = 0
                while (end := pending.find(b"\n", max(begin, searched))) >= 0:
                    yield bytes(pending[begin:end])
                    begin = end + 1
                del pending[:begin]
                if len(pending) > MAX_LINE_BYTES:
                    raise MalformedAnswer(f"GET {path}: a line of more than {MAX_LINE_BYTES} bytes")
            if pending.strip():
                raise MalformedAnswer(f"GET {path}: the last line ends too early")
        finally:
            _cut(response)

    async def _exchange(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> bytes:
        sent = self.clock.monotonic()
        for repeated in (False, True):
            async with self._answer(method, path, query, headers, body) as response:
                content = await response.read()
                if HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
                    return content
                error = error_of(method, path, response.status, content, response.headers)
            if repeated or not await self._may_repeat(error, sent):
                break
        raise error

    async def _may_repeat(self, error: ApiError, sent: float) -> bool:
        return error.status == HTTPStatus.UNAUTHORIZED and await self._connection.refresh(since=sent)

    @asynccontextmanager
    async def _answer(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str],
        body: bytes | None,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        """One request, its errors mapped; the response is released or closed at the end."""
        authorization = await self._connection.auth_headers()
        sent = self.clock.monotonic()
        try:
            async with self._connection.session.request(
                method,
                self._url(path, query),
                data=_sendable(body),
                headers={**headers, **authorization},
                allow_redirects=False,
                **self._connection.options,
            ) as response:
                self._observe(response.headers.get("Date", ""), sent, self.clock.monotonic())
                yield response
        except aiohttp.ClientError as error:
            raise _error_of_client(method, path, error) from error

    async def _open_stream(self, path: str, query: Mapping[str, str]) -> aiohttp.ClientResponse:
        headers = {"Accept": _JSON, "User-Agent": self._agent}
        try:
            async with asyncio.timeout(self._timeout):
                for repeated in (False, True):
                    sent = self.clock.monotonic()
                    response = await self._begin(path, query, headers)
                    if response.status == HTTPStatus.OK:
                        return response
                    async with response:
                        content = await response.read()
                    error = error_of("GET", path, response.status, content, response.headers)
                    if repeated or not await self._may_repeat(error, sent):
                        break
        except TimeoutError:
            raise Unreachable(f"GET {path}: no answer within {self._timeout:g} s", reason="Timeout") from None
        except aiohttp.ClientError as cause:
            raise _error_of_client("GET", path, cause) from cause
        raise error

    async def _begin(
        self, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        authorization = await self._connection.auth_headers()
        return await self._connection.session.get(
            self._url(path, query),
            headers={**headers, **authorization},
            allow_redirects=False,
            **self._connection.options,
        )

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        text = self._connection.base_url + path
        if query:
            text += "?" + urlencode(query, quote_via=quote)
        return URL(text, encoded=True)

    def _observe(self, text: str, sent: float, received: float) -> None:
        if text != self._date[0]:
            try:
                # Parsed once per second of the server, not once per answer.
                self._date = (text, parsedate_to_datetime(text))
            except ValueError:
                return  # a proxy that leaves the header out
        if self._date[0] and self._date[1].tzinfo is not None:
            self.clock.observe(self._date[1], sent, received)


def _sendable(body: bytes | None) -> bytes | io.BytesIO | None:
    """Above 1 MiB aiohttp wants a file, of which it sends a part at a time, and warns of anything else."""
    return io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY_BYTES else body


def _cut(response: aiohttp.ClientResponse) -> None:
    """End an answer at once: TLS would wait for the peer's goodbye, from a silent one half a minute."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()
    response.close()


async def _next_chunk(response: aiohttp.ClientResponse, path: str, idle_timeout: float) -> bytes:
    try:
        async with asyncio.timeout(idle_timeout):
            return await response.content.readany()
    except TimeoutError:
        text = f"GET {path}: silent for {idle_timeout:g} s"
    except aiohttp.ClientError as error:
        raise Unreachable(
            f"GET {path}: the connection was cut ({type(error).__name__})", reason="Cut"
        ) from error
    raise Unreachable(text, reason="Silent")


def _error_of_client(method: str, path: str, error: aiohttp.ClientError) -> ApiError:
    """What aiohttp's error means; its text is left out where it can quote what the peer sent."""
    call = f"{method} {path}: {type(error).__name__}"
    if isinstance(error, _NOT_SENT):
        return Unreachable(f"{call}: {str(error)[:200]}", reason="NotSent")
    if isinstance(error, aiohttp.ClientResponseError):
        return MalformedAnswer(call, ambiguous=is_write(method))
    return Unreachable(call, reason="Cut", ambiguous=is_write(method))
