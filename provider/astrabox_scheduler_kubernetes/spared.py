"""What a reconcile has spared is looked at once more when its time is over, and told if it still differs."""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from astrabox_scheduler_client.errors import ApiError, ConnectError
from astrabox_scheduler_crds.deletion import is_deleted
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_kubernetes.rules import Wanted, desired, differs
from astrabox_scheduler_kubernetes.seam import InvalidSchedule
from astrabox_scheduler_kubernetes.store import Store
from astrabox_scheduler_kubernetes.telling import Trouble
from astrabox_scheduler_kubernetes.timing import Pauses, Timing
from astrabox_scheduler_kubernetes.writing import mark_of

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")
_OTHER: Final = (
    "the schedule of Deployment %.100r was applied while schedules were reconciled, and is "
    "another than AstraBox had listed then: if AstraBox shows another, save it there again"
)
_GONE: Final = (
    "the schedule of Deployment %.100r was deleted while schedules were reconciled, though AstraBox "
    "had listed it then: if AstraBox still shows it, save it there again"
)


@dataclass(frozen=True, slots=True)
class Spared:
    """A schedule that differed from what AstraBox had given, None where it had given none."""

    want: Wanted | None
    mark: str

    def still(self, stored: DeploymentSchedule, now: datetime) -> bool:
        """Whether it is as it was, and differs."""
        return mark_of(stored) == self.mark and is_other(self.want, stored, now)


def is_other(want: Wanted | None, stored: DeploymentSchedule, now: datetime) -> bool:
    """Whether the stored schedule is not the wanted one; where none is wanted, a tombstone is right."""
    if is_deleted(stored):
        return want is not None
    try:
        return want is None or differs(desired(want, stored, now), stored)
    except InvalidSchedule:
        return True


class SecondLook:
    """One at a time: a later reconcile begins it anew."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._task: asyncio.Task[None] | None = None
        self._looking = Trouble(
            "schedules that a reconcile left alone cannot be looked at", "they can be looked at again"
        )

    async def begin(self, spared: Mapping[str, Spared]) -> None:
        """Look at these, by the name of the object, once they are not spared any more."""
        await self.stop()
        if spared:
            self._task = asyncio.create_task(self._look(spared), name="astrabox second look")

    async def stop(self) -> None:
        """End it."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _look(self, spared: Mapping[str, Spared]) -> None:
        await asyncio.sleep(self._timing.recently)
        pauses = Pauses(self._timing)
        while True:
            try:
                async with self._store.use() as api:
                    found = {each.metadata.name: each for each in (await api.schedules.list()).items}
                    now = api.clock.now()
            except (ApiError, ConnectError) as error:
                self._looking.failed(error)
                await asyncio.sleep(pauses.next(getattr(error, "retry_after", None)))
            else:
                self._looking.worked()
                break
        for name, each in spared.items():
            stored = found.get(name)
            if stored is not None and each.still(stored, now):
                _LOG.warning(_GONE if is_deleted(stored) else _OTHER, stored.spec.deployment_id)
