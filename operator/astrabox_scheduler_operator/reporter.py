"""Kubernetes Events: only what a user must act on, or what explains a hole in the history."""

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal, Protocol

from astrabox_scheduler_client.errors import ApiError
from astrabox_scheduler_client.fan_out import fan_out
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.firing import MAX_COUNTED_SKIPS, SkipReason
from astrabox_scheduler_crds.metadata import ObjectMeta, utc_text
from astrabox_scheduler_operator.entry import Entry, Gap, Problem

MAX_WAITING: Final = 20_000
_PACE_SECONDS: Final = 0.02
_AT_ONCE: Final = 8
_LOG = logging.getLogger(__name__)
_WHY: Final = {
    SkipReason.NO_PROVIDER: "no AstraBox process was running",
    SkipReason.MISSED: "they could not be fired within the catch-up window",
    SkipReason.NAME_TAKEN: "the name of the run belongs to another one",
    SkipReason.DISABLED: "the schedule was disabled before they could be fired",
}


class EventSink(Protocol):
    """Where Events are created."""

    async def create(
        self,
        kind: str,
        about: ObjectMeta,
        reason: str,
        note: str,
        *,
        type: Literal["Normal", "Warning"] = "Normal",  # noqa: A002 - the API's own name
        action: str = "Schedule",
        once: str | None = None,
    ) -> None:
        """Create one, unless another has said `once` of it. Raises ApiError."""
        ...


@dataclass(frozen=True, slots=True)
class Report:
    """One Event to be written."""

    about: ObjectMeta
    reason: str
    note: str
    once: str | None = None


class Reporter:
    """Writes Events one after the other, behind the firing; what cannot be written is dropped."""

    def __init__(self, events: EventSink, idle: asyncio.Event) -> None:
        self._events = events
        self._idle = idle
        self._waiting: asyncio.Queue[Report] = asyncio.Queue(MAX_WAITING)

    def gap(self, entry: Entry, gap: Gap) -> None:
        """Due times of one outage were skipped; two operators that start together may both have it."""
        once = f"{gap.reason}/{utc_text(gap.first)}/{utc_text(gap.last)}"
        self._add(Report(entry.metadata, "DueTimesSkipped", gap_note(gap, entry.next_due), once))

    def problem(self, entry: Entry, problem: Problem) -> None:
        """The schedule cannot fire until somebody corrects it."""
        self._add(Report(entry.metadata, problem.reason, problem.message))

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            report = await self._waiting.get()
            try:
                await self._idle.wait()
                await self._write(report)
            except asyncio.CancelledError:
                self._add(report)  # `flush` is to write it
                raise
            await asyncio.sleep(_PACE_SECONDS)

    def __len__(self) -> int:
        return self._waiting.qsize()

    async def flush(self) -> None:
        """Write what waits, at once."""

        async def work(_: int) -> None:
            while not self._waiting.empty():
                await self._write(self._waiting.get_nowait())

        await fan_out(work, range(_AT_ONCE))

    def _add(self, report: Report) -> None:
        try:
            self._waiting.put_nowait(report)
        except asyncio.QueueFull:
            _LOG.warning("an Event was dropped, too many wait", extra={"schedule": report.about.name})

    async def _write(self, report: Report) -> None:
        try:
            await self._events.create(
                labels.SCHEDULE_KIND,
                report.about,
                report.reason,
                report.note,
                type="Warning",
                action="Schedule",
                once=report.once,
            )
        except ApiError as error:
            _LOG.warning("an Event could not be written: %s", error, extra={"schedule": report.about.name})


def gap_note(gap: Gap, next_due: datetime | None) -> str:
    """What was skipped, from when to when, why, and what comes next."""
    most = "at least " if gap.count >= MAX_COUNTED_SKIPS else ""
    what = "1 due time was" if gap.count == 1 else f"{most}{gap.count} due times were"
    when = (
        f"at {utc_text(gap.first)}"
        if gap.count == 1
        else f"from {utc_text(gap.first)} to {utc_text(gap.last)}"
    )
    after = f"The next due time is {utc_text(next_due)}." if next_due else "No due time follows."
    why = _WHY[gap.reason].replace("they", "it") if gap.count == 1 else _WHY[gap.reason]
    return f"{what} skipped, {when}: {why}. {after}"
