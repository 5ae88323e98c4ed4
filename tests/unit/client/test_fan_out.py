import asyncio

import pytest

from astrabox_scheduler_client.errors import NotFound, ServerError
from astrabox_scheduler_client.fan_out import fan_out


async def test_results_are_in_order_and_no_more_than_the_limit_run_at_once() -> None:
    running, most = 0, 0

    async def call(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(10 - number % 10):
            await asyncio.sleep(0)
        running -= 1
        return number

    assert await fan_out(call, range(40), limit=4) == list(range(40))
    assert (running, most) == (0, 4)


async def test_the_first_error_ends_the_others_and_is_raised_as_itself() -> None:
    ended: list[int] = []

    async def call(number: int) -> None:
        if number == 1:
            raise NotFound("gone")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    with pytest.raises(NotFound):
        await fan_out(call, range(3))
    assert sorted(ended) == [0, 2]


async def test_a_bug_is_not_hidden_behind_an_error_of_the_api() -> None:
    async def call(number: int) -> None:
        raise ServerError("down") if number else ZeroDivisionError

    with pytest.raises(ExceptionGroup):
        await fan_out(call, range(2))
