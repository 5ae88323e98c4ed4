"""Many runs ask at once whether their schedules are still enabled: a look answers for some who wait.

For more than that a list of all schedules would be read: while that takes longer than a look is good for,
every answer would be too old, and nothing would be started.
"""

import asyncio
from collections.abc import Collection
from datetime import datetime
from typing import Protocol

from astrabox_scheduler_client.confirm import ONE_BY_ONE, Confirmed
from astrabox_scheduler_client.errors import ApiError


class Confirm(Protocol):
    """`astrabox_scheduler_client.confirm.ScheduleConfirm`."""

    async def versions(self, names: Collection[str]) -> Confirmed:
        """The enabled ones of these schedules, by a read begun now or a moment ago."""


class _Batch:
    def __init__(self) -> None:
        self.names: set[str] = set()
        self.answer: Confirmed | None = None
        self.error: ApiError | None = None


class Confirming:
    """One look at a time; whoever comes during one is in the next."""

    def __init__(self, confirm: Confirm) -> None:
        self._confirm = confirm
        self._next = _Batch()
        self._looking = asyncio.Lock()

    async def enabled(self, schedule: str) -> datetime | None:
        """When the look began that showed this schedule enabled (aware UTC), None if it did not.

        Raises ApiError.
        """
        if len(self._next.names) >= ONE_BY_ONE and schedule not in self._next.names:
            self._next = _Batch()
        batch = self._next
        batch.names.add(schedule)
        async with self._looking:
            if batch.answer is None and batch.error is None:
                if self._next is batch:
                    self._next = _Batch()
                try:
                    batch.answer = await self._confirm.versions(batch.names)
                except ApiError as error:
                    batch.error = error
        if batch.answer is None:
            assert batch.error is not None
            raise batch.error
        if schedule in batch.answer.failed:
            raise batch.answer.failed[schedule]
        return batch.answer.at if schedule in batch.answer.versions else None
