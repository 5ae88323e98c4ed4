"""Creates the run of a due time: the one place that does, with the last guard before it."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Protocol

from astrabox_scheduler_client.errors import AlreadyExists
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.assignment import owner
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import scheduled_run_name
from astrabox_scheduler_crds.run import Origin, RunInvocation, RunSpec
from astrabox_scheduler_operator.attendance import Attendance
from astrabox_scheduler_operator.entry import Entry


class RunStore(Protocol):
    """The calls for runs that firing needs."""

    async def create(self, run: RunInvocation) -> ObjectMeta:
        """Create it. Raises ApiError."""
        ...

    async def get(self, name: str) -> RunInvocation:
        """Read it. Raises ApiError."""
        ...


class Created(Enum):
    """What became of a create."""

    CREATED = "created"
    THERE_ALREADY = "there already"
    NAME_TAKEN = "name taken"


class NotDue(Exception):  # noqa: N818 - a refusal, and it says which
    """The guard refused: the due time lies in the future, or is older than the catch-up window."""


@dataclass(frozen=True, slots=True)
class RunCreator:
    """Creates runs in one namespace. `window`: how late a due time may still fire."""

    runs: RunStore
    attendance: Attendance
    window: timedelta

    async def create(
        self, entry: Entry, due: datetime, payload: str, confirmed_at: datetime, now: datetime
    ) -> Created:
        """Create the run of `entry` at `due`, on a read begun at `confirmed_at`. Raises NotDue, ApiError."""
        guard(due, now, self.window)
        run = self._run(entry, due, payload, confirmed_at, now)
        try:
            await self.runs.create(run)
        except AlreadyExists:
            # The name is the lock: another replica, or an earlier try of ours, was here before.
            return await self.found(entry, due)
        return Created.CREATED

    async def found(self, entry: Entry, due: datetime) -> Created:
        """Whose run is there under the name of this due time. Raises NotFound, another ApiError."""
        there = await self.runs.get(scheduled_run_name(entry.name, due))
        same = (there.spec.deployment_id, there.spec.due_time) == (entry.deployment_id, due)
        return Created.THERE_ALREADY if same else Created.NAME_TAKEN

    def _run(
        self, entry: Entry, due: datetime, payload: str, confirmed_at: datetime, now: datetime
    ) -> RunInvocation:
        name = scheduled_run_name(entry.name, due)
        marks = {labels.DEPLOYMENT_LABEL: entry.name}
        assignee = owner(name, self.attendance.providers().assignable)
        if assignee is not None:
            marks[labels.ASSIGNEE_LABEL] = assignee
        uid, generation = entry.version
        origin = Origin(
            identity=self.attendance.identity,
            at=now,
            confirmed_at=confirmed_at,
            schedule_uid=uid,
            schedule_generation=generation,
        )
        spec = RunSpec(
            deployment_id=entry.deployment_id,
            trigger="schedule",
            due_time=due,
            payload=payload,
            created_by=origin,
        )
        return RunInvocation(metadata=ObjectMeta(name=name, labels=marks), spec=spec)


def guard(due: datetime, now: datetime, window: timedelta) -> None:
    """Never before it is due, never later than the window. Raises NotDue."""
    if not timedelta(0) <= now - due <= window:
        raise NotDue(f"due {due.isoformat()}, now {now.isoformat()}, window {window}")
