"""apply and delete: one schedule at a time, in order for each Deployment."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.schedule import MAX_DEPLOYMENT_ID_LENGTH, DeploymentSchedule
from astrabox_scheduler_kubernetes.restore import Restorer
from astrabox_scheduler_kubernetes.rules import Wanted, storable, wanted
from astrabox_scheduler_kubernetes.seam import Schedule, ScheduleCapacityExceeded
from astrabox_scheduler_kubernetes.store import Store
from astrabox_scheduler_kubernetes.timing import Timing
from astrabox_scheduler_kubernetes.writing import Trail, Writing, mark_of


class Schedules:
    """Writes single schedules; after an error the old state holds, or is put back.

    A delete is the write of a tombstone (`astrabox_scheduler_crds.deletion`): a reconcile that began from
    an older list, here or in another process, meets it under the name that it would create.
    """

    def __init__(self, store: Store, timing: Timing, most: int | None) -> None:
        """`most`: enabled schedules that are accepted, None for no limit."""
        self._store = store
        self._timing = timing
        self._most = most
        self._restorer = Restorer(store, timing)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def apply(self, schedule: Schedule) -> None:
        """Create or change one. Raises errors of the seam and of the store."""
        want = wanted(schedule)
        async with self._one_at_a_time(want.name) as writing:

            async def admit(stored: DeploymentSchedule | None) -> None:
                if want.enabled and not (stored is not None and stored.spec.enabled):
                    await self.check_capacity(writing.api, want)

            await writing.put(want, marked=True, admit=admit)

    async def delete(self, deployment_id: str) -> None:
        """Remove one, or note that there is none. Raises errors of the store."""
        if not storable(deployment_id) or len(deployment_id) > MAX_DEPLOYMENT_ID_LENGTH:
            return  # it cannot have been stored
        name = deployment_key(deployment_id)
        async with self._one_at_a_time(name) as writing:
            await writing.bury(name, deployment_id)

    async def check_capacity(self, api: SchedulerApi, want: Wanted) -> None:
        """Raise ScheduleCapacityExceeded if one more enabled schedule is one too many.

        Two processes that enable their schedules in the same moment may exceed the limit by one.
        """
        if self._most is None:
            return
        enabled = await api.schedules.enabled_versions()
        if len(enabled.keys() - {want.name}) >= self._most:
            raise ScheduleCapacityExceeded(
                f"No more than {self._most} enabled schedules are accepted: disable another one first."
            )

    async def stop(self) -> None:
        """End what goes on in the background."""
        await self._restorer.stop()

    @asynccontextmanager
    async def _one_at_a_time(self, name: str) -> AsyncIterator[Writing]:
        begun = self._store.clock.monotonic()  # however long it waits for another: it was given now
        lock = self._locks.setdefault(name, asyncio.Lock())
        doubt: Trail | None = None
        trail = Trail()
        async with lock:
            try:
                async with self._store.use() as api:
                    doubt = await self._restorer.take(name)
                    yield Writing(api, self._timing, trail, begun)
            except BaseException:  # also a cancellation that comes after the write
                if left := _left_in_doubt(doubt, trail):
                    self._restorer.begin(name, left)
                raise


def _left_in_doubt(before: Trail | None, now: Trail) -> Trail | None:
    """What must still be put back after a call that failed: the state that neither of them has written."""
    if before is None:
        return now if now.unanswered else None
    seen = now.previous
    ours = seen is not None and mark_of(seen) in before.marks
    previous = before.previous if ours or not now.read else seen
    return Trail(previous, read=True, marks=before.marks | now.marks, unanswered=True)
