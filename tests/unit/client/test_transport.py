import asyncio
import json
import socket
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from astrabox_scheduler_client import transport as transport_module
from astrabox_scheduler_client.errors import (
    ApiError,
    MalformedAnswer,
    NotServed,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from astrabox_scheduler_client.transport import Transport
from tests.unit.client.scripted import (
    ScriptedServer,
    Step,
    answer,
    chunked,
    endpoint,
    raw,
    silent,
    status_object,
    transport_to,
)

HALF = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"


async def test_a_request_is_what_the_caller_said() -> None:
    async with (
        ScriptedServer([answer(body={"a": 1})]).running() as server,
        transport_to(server.port) as (transport, _),
    ):
        got = await transport.request(
            "PATCH",
            "/a/b%2Fc",
            query={"labelSelector": "a/b in (c,d)", "x": "ü&="},
            body=b"{}",
            content_type="application/merge-patch+json",
            accept="application/json;as=X",
        )
    assert json.loads(got) == {"a": 1}
    request = server.requests[0]
    assert request.target == "/a/b%2Fc?labelSelector=a%2Fb%20in%20%28c%2Cd%29&x=%C3%BC%26%3D"
    assert (request.method, request.body) == ("PATCH", b"{}")
    assert request.headers["user-agent"] == "astrabox-scheduler/test"
    assert request.headers["authorization"] == "Bearer first"
    assert request.headers["content-type"] == "application/merge-patch+json"
    assert request.headers["accept"] == "application/json;as=X"


async def test_every_answer_tells_the_clock_the_time() -> None:
    seen = []
    async with (
        ScriptedServer([answer(), answer(404)]).running() as server,
        transport_to(server.port) as (transport, _),
    ):
        transport.clock.observe = lambda *each: seen.append(each)  # type: ignore[method-assign]
        begun = transport.clock.monotonic()
        await transport.request("GET", "/")
        with pytest.raises(NotServed):
            await transport.request("GET", "/")
        ended = transport.clock.monotonic()
    assert [each[0] for each in seen] == [datetime(2026, 1, 31, 2, 30, tzinfo=UTC)] * 2
    assert begun <= seen[0][1] <= seen[0][2] <= seen[1][1] <= seen[1][2] <= ended


@pytest.mark.parametrize("date", ["", "yesterday", "Sat, 99 Jan 2026 02:30:00 GMT"])
async def test_a_date_that_cannot_be_read_is_no_error(date: str) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nDate: {date}\r\n\r\n{{}}".encode()
    async with ScriptedServer([raw(head)]).running() as server, transport_to(server.port) as (transport, _):
        assert await transport.request("GET", "/") == b"{}"


async def test_refused_is_not_ambiguous() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        async with transport_to(taken.getsockname()[1]) as (transport, _):
            with pytest.raises(Unreachable) as caught:
                await transport.request("POST", "/", body=b"{}")
    assert (caught.value.ambiguous, caught.value.permanent, caught.value.status) == (False, False, None)


@pytest.mark.parametrize(("method", "ambiguous"), [("POST", True), ("GET", False)])
@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (silent(), Unreachable),
        (raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{", then_silent=True), Unreachable),
        (raw(b"HTTP/1.1 200 O"), Unreachable),
        (raw(HALF), Unreachable),
        (chunked(b"{", ended=False), Unreachable),
        (raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n"), MalformedAnswer),
    ],
)
async def test_an_answer_that_does_not_come_whole(
    step: Step, kind: type[ApiError], method: str, ambiguous: bool
) -> None:
    # aiohttp repeats a GET on its own when a connection is closed before any answer.
    async with (
        ScriptedServer([step, step]).running() as server,
        transport_to(server.port, limit=0.2) as (transport, _),
    ):
        with pytest.raises(ApiError) as caught:
            await transport.request(method, "/")
    assert type(caught.value) is kind
    assert caught.value.ambiguous is ambiguous


async def test_429_and_5xx_are_not_repeated() -> None:
    script = [answer(429, Retry_After="7"), answer(503)]
    async with (
        ScriptedServer(script).running() as server,
        transport_to(server.port) as (transport, configuration),
    ):
        with pytest.raises(TooManyRequests) as caught:
            await transport.request("POST", "/", body=b"{}")
        with pytest.raises(ServerError):
            await transport.request("POST", "/", body=b"{}")
    assert caught.value.retry_after == 7
    assert (len(server.requests), configuration.reads) == (2, 0)


async def test_401_reads_the_credentials_again_and_repeats_once() -> None:
    async with (
        ScriptedServer([answer(401), answer(body={"ok": 1})]).running() as server,
        transport_to(server.port) as (transport, configuration),
    ):
        configuration.endpoint = endpoint(server.port, "second")
        assert await transport.request("POST", "/", body=b"{}") == b'{"ok": 1}'
    assert [each.headers["authorization"] for each in server.requests] == ["Bearer first", "Bearer second"]
    assert [each.body for each in server.requests] == [b"{}", b"{}"]


async def test_401_twice_is_unauthorized() -> None:
    async with (
        ScriptedServer([answer(401), answer(401)]).running() as server,
        transport_to(server.port) as (transport, configuration),
    ):
        configuration.endpoint = endpoint(server.port, "second")
        with pytest.raises(Unauthorized):
            await transport.request("GET", "/")
    assert len(server.requests) == 2


async def test_401_with_unchanged_credentials_is_not_repeated() -> None:
    async with (
        ScriptedServer([answer(401)]).running() as server,
        transport_to(server.port) as (transport, configuration),
    ):
        with pytest.raises(Unauthorized):
            await transport.request("GET", "/")
    assert (len(server.requests), configuration.reads) == (1, 1)


async def test_many_calls_refused_at_once_read_the_credentials_once() -> None:
    async with (
        ScriptedServer([answer(401)] * 10 + [answer()] * 10).running() as server,
        transport_to(server.port) as (transport, configuration),
    ):
        configuration.endpoint = endpoint(server.port, "second")
        gate = asyncio.Event()
        real = transport.connection.refresh

        async def refresh(since: float | None = None) -> bool:
            if len(server.requests) == 10:
                gate.set()
            await gate.wait()
            return await real(since)

        transport.connection.refresh = refresh  # type: ignore[method-assign]
        await asyncio.gather(*(transport.request("GET", "/") for _ in range(10)))
    assert configuration.reads == 1


async def test_a_new_address_is_used_and_the_old_session_is_closed_in_the_end() -> None:
    async with ScriptedServer([answer(401)]).running() as old, ScriptedServer([answer()]).running() as new:
        async with transport_to(old.port) as (transport, configuration):
            first = transport.connection.session
            configuration.endpoint = endpoint(new.port, "second")
            await transport.request("GET", "/")
            assert len(new.requests) == 1
            assert not first.closed
            configuration.endpoint = endpoint(old.port, "third")
            await transport.connection.refresh()
            retired = [first.closed]
            last = transport.connection.session
        assert (retired, last.closed) == ([True], True)


async def test_a_redirect_is_not_followed() -> None:
    async with (
        ScriptedServer([answer(302, Location="http://127.0.0.1:1/")]).running() as server,
        transport_to(server.port) as (transport, _),
    ):
        with pytest.raises(MalformedAnswer):
            await transport.request("GET", "/")


def idle(transport: Transport) -> bool:
    """No connection is in use."""
    connector = transport.connection.session.connector
    return connector is not None and not connector._acquired


async def lines_of(step: Step, idle_timeout: float = 5.0) -> list[bytes]:
    async with (
        ScriptedServer([step]).running() as server,
        transport_to(server.port) as (transport, _),
        aclosing(transport.stream("/", {"watch": "true"}, idle_timeout)) as lines,
    ):
        return [line async for line in lines]


async def test_a_stream_gives_whole_lines_however_they_were_cut() -> None:
    assert await lines_of(chunked(b"on", b"e\ntwo\nth", b"r", b"ee\n")) == [b"one", b"two", b"three"]


async def test_a_line_of_nearly_4_mib_is_whole() -> None:
    big = b"x" * (4 * 2**20 - 1)
    assert await lines_of(chunked(big, b"\n")) == [big]


async def test_a_longer_line_is_malformed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "MAX_LINE_BYTES", 1000)
    with pytest.raises(MalformedAnswer):
        await lines_of(chunked(b"x" * 1001, ended=False, then_silent=True))


async def test_a_silent_stream_ends_as_unreachable() -> None:
    with pytest.raises(Unreachable) as caught:
        await lines_of(chunked(b"one\n", ended=False, then_silent=True), idle_timeout=0.1)
    assert caught.value.reason == "Silent"


async def test_a_stream_cut_off_is_unreachable_and_one_ended_in_a_line_is_malformed() -> None:
    with pytest.raises(Unreachable):
        await lines_of(chunked(b"one\ntw", ended=False))
    with pytest.raises(MalformedAnswer):
        await lines_of(chunked(b"one\ntw"))


async def test_a_refused_stream_raises_its_error_and_401_is_repeated() -> None:
    script = [answer(401), answer(410, status_object(410, "Expired"))]
    async with (
        ScriptedServer(script).running() as server,
        transport_to(server.port) as (transport, configuration),
    ):
        configuration.endpoint = replace(configuration.endpoint, authorization="Bearer second")
        with pytest.raises(ApiError) as caught:
            await anext(transport.stream("/", {}, 1.0))
    assert caught.value.status == 410
    assert len(server.requests) == 2


async def test_leaving_a_stream_closes_its_connection() -> None:
    step = chunked(b"one\n", ended=False, then_silent=True)
    async with ScriptedServer([step]).running() as server, transport_to(server.port) as (transport, _):
        async with aclosing(transport.stream("/", {}, 5.0)) as lines:
            assert await anext(lines) == b"one"
        assert idle(transport)


async def test_a_cancelled_call_leaves_no_connection_behind() -> None:
    async with ScriptedServer([silent()]).running() as server, transport_to(server.port) as (transport, _):
        call = asyncio.create_task(transport.request("GET", "/"))
        await server.asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        assert idle(transport)
