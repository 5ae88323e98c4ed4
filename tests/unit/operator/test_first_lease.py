"""The first Lease of an operator that starts."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from astrabox_scheduler_client.errors import (
    AccessDenied,
    ApiError,
    ConnectError,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    Unreachable,
)
from astrabox_scheduler_operator.repeat import RETRY_SECONDS
from tests.unit.operator.room import Member, Room, slow_during


def failing(member: Member, *errors: Exception) -> list[float]:
    """Its next starts raise these, one after the other; when it was tried."""
    started, left, tried = member.start, list(errors), []

    async def start(timeout: float) -> None:  # noqa: ASYNC109
        tried.append(asyncio.get_running_loop().time())
        if left:
            raise left.pop(0)
        await started(timeout)

    member.start = start  # type: ignore[method-assign]
    return tried


async def test_a_first_lease_that_is_not_stored_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G1: a process that ended would be started again later and later, when the others are well."""
    caplog.set_level("INFO")
    pauses: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await real(0)

    monkeypatch.setattr("astrabox_scheduler_operator.share.asyncio.sleep", sleep)
    member = Member(Room(), "op-a", slow_during(), reads=True)
    late = Unreachable("the Lease was not stored within 12 s", reason="Timeout")
    denied = AccessDenied("cannot create leases", status=403)
    tried = failing(member, late, late, ServerError("500", status=500), ConnectError("unreadable"), denied)
    running = asyncio.create_task(member.share.run())
    while not (member.held() or running.done()):
        await real(0)
    await ended(running)
    assert len(tried) == 6
    assert pauses[:5] == [RETRY_SECONDS] * 5
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 5, "each kind once"
    assert told[0] == "no Lease can be taken, trying on: the Lease was not stored within 12 s"
    assert "bind the service account" in told[3]
    assert told[4] == "the Lease is taken"


@pytest.mark.parametrize("error", [NotFound("no namespace"), Forbidden("a policy"), Invalid("the Lease")])
async def test_a_first_lease_that_is_refused_for_good_ends_the_process(error: ApiError) -> None:
    member = Member(Room(), "op-a", slow_during(), reads=True)
    failing(member, error)
    with pytest.raises(type(error)):
        await member.share.run()


async def test_a_stop_before_there_is_a_lease_ends_at_once() -> None:
    member = Member(Room(), "op-a", slow_during(), reads=True)
    tried = failing(member, Unreachable("refused", reason="NotSent"))
    running = asyncio.create_task(member.share.run())
    while not (tried or running.done()):  # noqa: ASYNC110 - it is there after a few turns
        await asyncio.sleep(0)
    async with asyncio.timeout(1):
        await ended(running)
    assert not member.held()


async def ended(running: asyncio.Task[None]) -> None:
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
