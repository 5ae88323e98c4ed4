"""Writes of a run's state: each on top of the version that was read, so that a lost run is noticed.

Nothing here calls AstraBox: a write that fails is repeated alone, never the call before it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from astrabox_scheduler_client.errors import ApiError, Conflict, Forbidden, NotFound, NotServed
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import RunInvocation, RunStatus
from astrabox_scheduler_crds.transitions import TransitionError, status_patch
from astrabox_scheduler_kubernetes.telling import Trouble
from astrabox_scheduler_kubernetes.timing import Pauses, Timing


class Dropped(Exception):  # noqa: N818 - an outcome, not a fault
    """The run is not ours any more, or nothing is left to do for it; the text says why."""


class RunStore(Protocol):
    """The calls of `astrabox_scheduler_client.runs.Runs` that are needed here."""

    async def get(self, name: str) -> RunInvocation:
        """Read one run."""

    async def patch_status(self, name: str, status: Any, resource_version: str | None) -> ObjectMeta:
        """Merge into its status."""

    async def patch_labels(
        self, name: str, labels: Any, *, resource_version: str | None = None
    ) -> ObjectMeta:
        """Set its labels."""


Change = Callable[[RunStatus], RunStatus]
"""A transition; raises TransitionError from a state in which it is not possible."""


class Recorder:
    """Saves transitions of runs."""

    def __init__(self, runs: RunStore, timing: Timing) -> None:
        self._runs = runs
        self._timing = timing
        self._saving = Trouble("the state of run {} cannot be saved", "the states of runs can be saved again")

    async def save(self, run: RunInvocation, change: Change) -> RunInvocation:
        """Write `change` and return the run as it is then; tries until it is known what became of it.

        Raises Dropped if the run was deleted, has ended, has another assignee or is in another attempt by
        then. A version that is old for another reason (somebody labelled the run) is read again and
        written on.
        """
        with self._saving.of(run.metadata.name) as failed:
            return await self._save(run, change, _Again(Pauses(self._timing), failed))

    async def _save(self, run: RunInvocation, change: Change, again: "_Again") -> RunInvocation:
        wanted = _changed(run, change)
        while True:
            try:
                return await self._write(run, wanted)
            except NotFound as error:
                raise Dropped("it was deleted") from error
            except Conflict as error:
                found = await self._read_again(run, again)
                if _is_ours(found, run) and _holds(found.status, run.status, wanted):
                    return found  # an earlier try was carried out, only its answer was lost
                if found.metadata.resource_version == run.metadata.resource_version:
                    await again.after(error)  # refused, and not for an old version
                run = _still_ours(found, run, wanted)
                wanted = _changed(run, change)
            except ApiError as error:
                if error.permanent and not isinstance(error, (Forbidden, NotServed)):
                    raise
                await again.after(error)

    async def unassign(self, name: str, version: str | None) -> bool:
        """Take the assignee's label off, so that others take the run; False if it has another version by now.

        Raises ApiError.
        """
        try:
            await self._runs.patch_labels(name, {ASSIGNEE_LABEL: None}, resource_version=version)
        except Conflict:
            return False
        return True

    async def _write(self, run: RunInvocation, wanted: RunStatus) -> RunInvocation:
        patch = status_patch(run.status, wanted)
        name, version = run.metadata.name, run.metadata.resource_version
        return run.changed(metadata=await self._runs.patch_status(name, patch, version), status=wanted)

    async def _read_again(self, run: RunInvocation, again: "_Again") -> RunInvocation:
        while True:
            try:
                return await self._runs.get(run.metadata.name)
            except NotFound as error:
                raise Dropped("it was deleted") from error
            except ApiError as error:
                await again.after(error)


@dataclass(frozen=True, slots=True)
class _Again:
    """The tries of one save."""

    pauses: Pauses
    failed: Callable[[Exception], None]

    async def after(self, error: ApiError) -> None:
        """Tell the failure, and wait before the next try."""
        self.failed(error)
        await asyncio.sleep(self.pauses.next(error.retry_after))


def _changed(run: RunInvocation, change: Change) -> RunStatus:
    try:
        return change(run.status)
    except TransitionError as error:
        raise Dropped(str(error)) from error


def _holds(found: RunStatus, before: RunStatus, wanted: RunStatus) -> bool:
    """Whether the status found has all that was to be written on top of `before`, in the same attempt.

    A Session alone proves nothing: whoever has taken the run over gets the same one from AstraBox.
    """
    if _attempt_of(found) != _attempt_of(wanted):
        return False
    stored = found.to_dict()
    return all(stored.get(key) == value for key, value in status_patch(before, wanted).items())


def _attempt_of(status: RunStatus) -> tuple[int, int]:
    return status.attempts, status.releases


def _still_ours(again: RunInvocation, before: RunInvocation, wanted: RunStatus) -> RunInvocation:
    """The run as read again, if only somebody's edit came between; raises Dropped otherwise."""
    claims = wanted.attempts != before.status.attempts
    if not claims and _attempt_of(again.status) != _attempt_of(before.status):
        raise Dropped("another attempt has begun")
    if again.status.finished:
        raise Dropped(f"it is {again.status.phase} by now")
    if not _is_ours(again, before):
        now = again.metadata.labels.get(ASSIGNEE_LABEL)
        raise Dropped(f"it was taken over by {now or 'nobody so far'}")
    return again


def _is_ours(found: RunInvocation, before: RunInvocation) -> bool:
    """Whether it still has the assignee that it had when we began."""
    return found.metadata.labels.get(ASSIGNEE_LABEL) == before.metadata.labels.get(ASSIGNEE_LABEL)
