"""enqueue and list_runs: runs outside the time rule, and the history of all."""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, Literal

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.errors import AlreadyExists, ApiError, MalformedAnswer, NotFound
from astrabox_scheduler_client.fan_out import fan_out
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL, DEPLOYMENT_LABEL
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import TOKEN_CHARACTERS, deployment_key, is_object_name, requested_run_name
from astrabox_scheduler_crds.run import Origin, RunInvocation, RunSpec
from astrabox_scheduler_kubernetes.ledger import clamped, newest_first, row
from astrabox_scheduler_kubernetes.rules import check_deployment_id, payload_text, storable
from astrabox_scheduler_kubernetes.seam import InvalidSchedule, ScheduledRun
from astrabox_scheduler_kubernetes.store import ROLE, Store
from astrabox_scheduler_kubernetes.timing import Pauses, Timing
from astrabox_scheduler_kubernetes.withdrawing import Unsaved

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")
_SMALL: Final = 32_768
"""Characters of a payload."""
_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz234567"


class Requests:
    """Creates runs that were asked for, and lists those that are there."""

    def __init__(self, store: Store, timing: Timing) -> None:
        self._store = store
        self._timing = timing
        self.unsaved = Unsaved(store, timing)

    async def enqueue(
        self,
        deployment_id: str,
        payload: Mapping[str, Any],
        trigger: Literal["manual", "replay"],
        source: str | None,
        assignee: str | None,
    ) -> ScheduledRun:
        """Save a run and return it. `assignee` is our Lease while it is held, so that we dispatch it.

        Raises errors of the seam and of the store.
        """
        check_deployment_id(deployment_id)
        if trigger not in ("manual", "replay") or (trigger == "replay") != (source is not None):
            raise InvalidSchedule("A replay names the run that it repeats, and a manual run names none.")
        text = "" if source is not None else payload_text(payload)
        run, sent = None, _Sent()
        with ExitStack() as undecided:
            try:
                async with self._store.use() as api:
                    if source is not None:
                        text = await self._payload_of(api, deployment_id, source)
                    now = api.clock.now()
                    run = _requested(deployment_id, text, trigger, source, assignee=assignee, now=now)
                    undecided.enter_context(self.unsaved.undecided(run.metadata.name))
                    saved = run.changed(metadata=await self._create(api, run, sent))
            except BaseException:  # also a cancellation, during the create or after it
                if run is not None and sent.perhaps:
                    self.unsaved.withdraw(run)
                raise
        _LOG.info("run %s is saved (%s)", saved.metadata.name, trigger)
        return row(saved)

    async def list_runs(self, deployment_id: str, limit: int) -> list[ScheduledRun]:
        """The newest runs of a Deployment. Raises errors of the store.

        Where payloads are large, and runs many, only those of about as many runs as are asked for are
        read. Small ones are all read in a list: it takes a tenth of the time of fifty reads.
        """
        if not storable(deployment_id):
            return []  # nothing can have been stored
        key, limit = deployment_key(deployment_id), clamped(limit)
        async with self._store.use() as api:
            found = await api.runs.list_metadata_for_deployment(key)
            found.sort(key=_second, reverse=True)
            if len(found) <= 2 * limit or await self._small(api, found):
                runs = await api.runs.list_for_deployment(key)
            else:
                runs = await self._newest(api, deployment_id, found, limit)
        # The key is a digest for most ids; somebody may label a run by hand with another's.
        return newest_first((run for run in runs if run.spec.deployment_id == deployment_id), limit)

    async def _newest(
        self, api: SchedulerApi, deployment_id: str, found: list[ObjectMeta], limit: int
    ) -> list[RunInvocation]:
        """The newest `limit` of this Deployment, and what was created in the same second as the last."""
        runs: list[RunInvocation] = []
        begin = 0
        while begin < len(found) and len(runs) < limit:
            end = begin + limit - len(runs)
            while end < len(found) and _second(found[end]) == _second(found[end - 1]):
                end += 1
            read = await fan_out(partial(self._read, api), [each.name for each in found[begin:end]])
            runs += [run for run in read if run is not None and run.spec.deployment_id == deployment_id]
            begin = end
        return runs

    async def _small(self, api: SchedulerApi, found: list[ObjectMeta]) -> bool:
        """Whether payloads are small, judged by the newest and the oldest run: most prompts never change."""
        samples = await fan_out(partial(self._read, api), [found[0].name, found[-1].name])
        return all(run is None or len(run.spec.payload) <= _SMALL for run in samples)

    async def _read(self, api: SchedulerApi, name: str) -> RunInvocation | None:
        """None for one that retention has taken since, or that cannot be read."""
        try:
            return await api.runs.get(name)
        except NotFound:
            return None
        except MalformedAnswer:
            _LOG.debug("run %s cannot be read and is left out of the history", name)
        return None

    async def _payload_of(self, api: SchedulerApi, deployment_id: str, source: str) -> str:
        run = None
        if is_object_name(source):
            with suppress(NotFound):
                run = await api.runs.get(source)
        if run is None or run.spec.deployment_id != deployment_id:
            raise InvalidSchedule("The run to repeat is no longer in the history of this Deployment.")
        return run.spec.payload

    async def _create(self, api: SchedulerApi, run: RunInvocation, sent: "_Sent") -> ObjectMeta:
        """Create it once. Raises ApiError; `sent` then says whether it may be saved all the same.

        Without an answer the same name is tried again, and found if it was saved.
        """
        loop = asyncio.get_running_loop()
        pauses = Pauses(self._timing)
        deadline: float | None = None
        while True:
            before, sent.perhaps = sent.perhaps, True
            try:
                return await self._created_or_found(api, run)
            except ApiError as error:
                sent.perhaps = before or error.ambiguous
                if not sent.perhaps:
                    raise
                deadline = deadline or loop.time() + self._timing.settle
                pause = pauses.next(error.retry_after)
                if error.permanent or loop.time() + pause > deadline:
                    raise
                await asyncio.sleep(pause)

    async def _created_or_found(self, api: SchedulerApi, run: RunInvocation) -> ObjectMeta:
        """Metadata of the run of this name, if it is the one that we create."""
        try:
            return await api.runs.create(run)
        except AlreadyExists:
            found = await api.runs.get(run.metadata.name)
            if found.spec != run.spec:
                raise
            return found.metadata


@dataclass(slots=True)
class _Sent:
    """What is known of a run that is being created."""

    perhaps: bool = False
    """Whether it may be saved."""


def _requested(
    deployment_id: str,
    payload: str,
    trigger: Literal["manual", "replay"],
    source: str | None,
    *,
    assignee: str | None,
    now: datetime,
) -> RunInvocation:
    key = deployment_key(deployment_id)
    return RunInvocation(
        metadata=ObjectMeta(
            name=requested_run_name(key, now, _token()),
            labels={DEPLOYMENT_LABEL: key} | ({ASSIGNEE_LABEL: assignee} if assignee else {}),
        ),
        spec=RunSpec(
            deployment_id=deployment_id,
            trigger=trigger,
            payload=payload,
            replayed_from=source,
            created_by=Origin(identity=assignee or f"{ROLE}-api", at=now),
        ),
    )


def _second(metadata: ObjectMeta) -> datetime:
    return metadata.creation_timestamp or datetime.fromtimestamp(0, UTC)


def _token() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(TOKEN_CHARACTERS))
