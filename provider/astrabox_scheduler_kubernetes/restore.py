"""After a write whose fate could not be found out, the old state is put back as soon as the store answers.

AstraBox rolls its own write back when a call fails, so the stored schedule must be the old one again.
The same holds for a call that was cancelled.
"""

import asyncio
import logging

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.errors import ApiError, ConnectError
from astrabox_scheduler_crds.deletion import alive
from astrabox_scheduler_crds.labels import APPLIED_AT_ANNOTATION, GIVEN_AT_ANNOTATION
from astrabox_scheduler_crds.metadata import utc_text
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_kubernetes.rules import put_back
from astrabox_scheduler_kubernetes.store import Store
from astrabox_scheduler_kubernetes.telling import Trouble
from astrabox_scheduler_kubernetes.timing import Pauses, Timing
from astrabox_scheduler_kubernetes.writing import Trail, mark_of, read

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")


class Restorer:
    """One task for each schedule whose state is in doubt."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._doubts: dict[str, tuple[Trail, asyncio.Task[None]]] = {}
        self._restoring = Trouble(
            "schedule {}: the old state cannot be put back",
            "the old states of schedules can be put back again",
        )

    def __len__(self) -> int:
        return len(self._doubts)

    def begin(self, name: str, trail: Trail) -> None:
        """Put back what `trail` found first, until `take` is called or it is done."""
        _LOG.warning(
            "schedule %s: a call was cut short or not answered, the old state will be put back", name
        )
        task = asyncio.create_task(self._restore(name, trail), name=f"astrabox restore {name}")
        self._doubts[name] = trail, task

    async def take(self, name: str) -> Trail | None:
        """Stop putting back, because another call begins; what was in doubt."""
        trail, task = self._doubts.pop(name, (None, None))
        if trail is not None and task is not None:
            task.cancel()
            try:
                await asyncio.gather(task, return_exceptions=True)
            except asyncio.CancelledError:
                self.begin(name, trail)  # the other call has ended before it began
                raise
        return trail

    async def stop(self) -> None:
        """Give up; AstraBox's next reconcile settles what is left."""
        for name in list(self._doubts):
            _LOG.warning("schedule %s: its old state could not be put back yet", name)
            await self.take(name)

    async def _restore(self, name: str, trail: Trail) -> None:
        loop = asyncio.get_running_loop()
        pauses = Pauses(self._timing)
        begun = loop.time()
        with self._restoring.of(name) as failed:
            while True:
                try:
                    over = loop.time() - begun > self._timing.straggle
                    async with self._store.use() as api:
                        if await self._step(api, name, trail, over=over):
                            break
                    await asyncio.sleep(pauses.next())
                except (ApiError, ConnectError) as error:
                    failed(error)
                    await asyncio.sleep(pauses.next(getattr(error, "retry_after", None)))
        del self._doubts[name]

    async def _step(self, api: SchedulerApi, name: str, trail: Trail, *, over: bool) -> bool:
        """Look once, and mend; True once nothing can be wrong any more. `over`: no write can still arrive."""
        found, previous = await read(api, name), trail.previous
        if found is None:
            return over or previous is not None  # a create may still arrive; a deletion was another's
        if mark_of(found) in trail.marks:
            if previous is None:
                await api.schedules.delete(name, found.metadata.uid, found.metadata.resource_version)
            else:
                await api.schedules.update(_again(previous, found, api))
        elif previous is None or found.metadata.resource_version != previous.metadata.resource_version:
            # No write of ours can arrive any more: none rests on a version later than `previous`.
            _LOG.info("schedule %s was written by somebody else since", name)
            return True
        else:
            # Written anew, so that a write which still is on its way meets another version and fails.
            await api.schedules.update(_again(previous, found, api))
        _LOG.info("schedule %s: the old state is back", name)
        return True


def _again(previous: DeploymentSchedule, found: DeploymentSchedule, api: SchedulerApi) -> DeploymentSchedule:
    """The old spec on top of what is stored, marked so that no older snapshot undoes it.

    No command was given now: one that is under way elsewhere is later than the one that is put back.
    """
    now = api.clock.now()
    old, metadata = previous.metadata, found.metadata
    given = old.annotations.get(GIVEN_AT_ANNOTATION, "")
    marks = {APPLIED_AT_ANNOTATION: utc_text(now), GIVEN_AT_ANNOTATION: given}
    return DeploymentSchedule(
        metadata=metadata.changed(
            labels={**alive(metadata.labels), **old.labels},
            annotations={**metadata.annotations, **old.annotations, **marks},
        ),
        spec=put_back(previous, found, now),
    )
