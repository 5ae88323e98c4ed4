"""Several calls at once, with a bound, and with the first error as itself."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from astrabox_scheduler_client.errors import ApiError

A = TypeVar("A")
R = TypeVar("R")


async def fan_out(call: Callable[[A], Awaitable[R]], arguments: Iterable[A], limit: int = 16) -> list[R]:
    """`call` for each argument, at most `limit` at a time; results in the order of the arguments.

    The first ApiError ends the others and is raised.
    """
    gate = asyncio.Semaphore(limit)

    async def one(argument: A) -> R:
        async with gate:
            return await call(argument)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(argument)) for argument in arguments]
    except BaseExceptionGroup as errors:
        known = errors.subgroup(ApiError)
        if known is None or errors.split(ApiError)[1] is not None:
            raise
        first = next(each for each in known.exceptions if isinstance(each, ApiError))
    else:
        return [task.result() for task in tasks]
    raise first
