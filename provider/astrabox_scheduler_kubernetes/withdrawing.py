"""A run whose create got no answer is not started until its caller has one; after an error, not at all.

AstraBox tells its user that the run was not saved, and he asks again: a run that was saved all the same
would be one too many. So it is cancelled as soon as the store answers.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.errors import ApiError, ConnectError, NotFound
from astrabox_scheduler_crds.run import RunInvocation
from astrabox_scheduler_crds.transitions import (
    Cancellation,
    TransitionError,
    status_patch,
    with_cancellation,
)
from astrabox_scheduler_kubernetes.store import Store
from astrabox_scheduler_kubernetes.telling import Trouble
from astrabox_scheduler_kubernetes.timing import Pauses, Timing

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")


class Unsaved:
    """Runs of which it is not known whether they were saved; this process begins none of them."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self._undecided: dict[str, asyncio.Event] = {}
        self._withdrawn: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._withdrawing = Trouble(
            "run {} cannot be looked for and cancelled", "runs can be looked for and cancelled again"
        )

    @contextmanager
    def undecided(self, name: str) -> Iterator[None]:
        """It is being created; if `withdraw` is called meanwhile, its fate stays open until that is done."""
        self._undecided[name] = asyncio.Event()
        try:
            yield
        finally:
            if name not in self._withdrawn:
                self._decide(name)

    def is_open(self, name: str) -> bool:
        """Whether it is not known yet whether the run is saved or withdrawn."""
        return name in self._undecided

    async def decided(self, name: str) -> None:
        """Wait until it is known whether the run is saved or withdrawn; at once for any other run."""
        if event := self._undecided.get(name):
            await event.wait()

    def withdraw(self, run: RunInvocation) -> None:
        """The caller has been told that it was not saved: cancel it if it was, or comes to be."""
        _LOG.warning("run %s may have been saved all the same: it will be cancelled", run.metadata.name)
        self._withdrawn.add(run.metadata.name)
        task = asyncio.create_task(self._withdraw(run), name=f"astrabox withdraw {run.metadata.name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self, patience: float) -> None:
        """Give up what is not known after so many seconds."""
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=max(0.0, patience))
        finally:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _withdraw(self, run: RunInvocation) -> None:
        try:
            with self._withdrawing.of(run.metadata.name) as failed:
                await self._until_known(run, failed)
        finally:
            self._withdrawn.discard(run.metadata.name)
            self._decide(run.metadata.name)

    async def _until_known(self, run: RunInvocation, failed: Callable[[Exception], None]) -> None:
        loop = asyncio.get_running_loop()
        pauses = Pauses(self._timing)
        begun = loop.time()
        while True:
            over = loop.time() - begun > self._timing.straggle
            try:
                async with self._store.use() as api:
                    if await self._step(api, run) or over:
                        return
            except (ApiError, ConnectError) as error:
                failed(error)
                await asyncio.sleep(pauses.next(getattr(error, "retry_after", None)))
            else:
                await asyncio.sleep(pauses.next())

    def _decide(self, name: str) -> None:
        if event := self._undecided.pop(name, None):
            event.set()

    async def _step(self, api: SchedulerApi, run: RunInvocation) -> bool:
        """Look once, and cancel what is there; True once its fate is known. Raises ApiError."""
        name = run.metadata.name
        try:
            found = await api.runs.get(name)
        except NotFound:
            return False  # the create may still arrive
        if found.spec != run.spec or found.status.finished:
            return True
        if found.status.started:
            _LOG.warning("run %s was saved all the same, and another process has started it", name)
            return True
        try:
            status = with_cancellation(found.status, Cancellation.NOT_SAVED, api.clock.now())
        except TransitionError:
            return True
        patch = status_patch(found.status, status)
        await api.runs.patch_status(name, patch, found.metadata.resource_version)
        _LOG.info("run %s is cancelled: %s", name, Cancellation.NOT_SAVED.message)
        return True
