"""One attempt at one run: the order of checks, writes and calls that the guarantees rest on.

    confirmed recently? -> claim (saved) -> still confirmed recently? -> start_session -> save the
    Session -> admit_turn -> save the turn

The claim is saved before AstraBox is called, so that a run that kills its process uses up its
attempts. No call is made while the Lease is not held, nor after a stop has begun.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol

from astrabox_scheduler_client.errors import ApiError, MalformedAnswer, NotFound
from astrabox_scheduler_crds.firing import START_MAX_AGE_SECONDS
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.payload import PayloadError, decode_payload
from astrabox_scheduler_crds.recovery import DISABLED_MESSAGE, DISABLED_REASON
from astrabox_scheduler_crds.run import Phase, RunInvocation, RunStatus
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_crds.transitions import (
    RetryPolicy,
    with_attempt,
    with_cancellation,
    with_exhaustion,
    with_failure,
    with_release,
    with_session,
    with_turn,
)
from astrabox_scheduler_kubernetes.calls import CallFailedError, Calls
from astrabox_scheduler_kubernetes.confirming import Confirming
from astrabox_scheduler_kubernetes.recorder import Dropped, Recorder, RunStore
from astrabox_scheduler_kubernetes.timing import Pauses, Timing
from astrabox_scheduler_kubernetes.waiting import Entry

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")
_START_MAX_AGE = timedelta(seconds=START_MAX_AGE_SECONDS)


class Fence(Protocol):
    """What `astrabox_scheduler_client.lease_keeper.LeaseKeeper` says about our Lease."""

    @property
    def name(self) -> str:
        """Name of the Lease in use."""

    @property
    def lapses(self) -> int:
        """How often it was lost."""

    def held(self) -> bool:
        """Whether it is surely ours."""


class HandedOver(Exception):  # noqa: N818 - an outcome, not a fault
    """A stop has begun: the run is left to another process."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What every attempt works with."""

    runs: RunStore
    recorder: Recorder
    confirming: Confirming
    fence: Fence
    calls: Calls
    policy: RetryPolicy
    clock: ServerClock
    timing: Timing
    stopping: Callable[[], bool]


class Attempt:
    """Carries one run one attempt further."""

    def __init__(self, entry: Entry, desk: Desk) -> None:
        self.entry = entry
        self.run = entry.run
        """As it was last read or written."""
        self.lost = False
        """Set by whoever cancels the attempt because the run is not ours any more."""
        self._desk = desk
        self._claimed = False
        self._called = False
        self._confirmed_at: datetime | None = None

    async def carry_out(self) -> datetime | None:
        """Return when the run is to be taken up again (aware UTC), None when nothing is left to do here.

        Raises HandedOver if a stop came between: `hand_over` is then to be called.
        """
        try:
            return await self._carry_out()
        except Dropped as why:
            self.lost = True
            _LOG.info("run %s is dropped: %s", self.entry.name, why)
            return None
        except ApiError as error:
            if error.permanent or isinstance(error, MalformedAnswer):
                self.lost = True  # the sweep takes it up again as long as it is ours
                _LOG.error("run %s cannot be read or written: %s", self.entry.name, error)
                return None
            _LOG.warning("run %s waits, its state cannot be read: %s", self.entry.name, error)
            return self._now() + timedelta(seconds=max(self._desk.timing.recheck, error.retry_after or 0.0))

    async def hand_over(self) -> None:
        """Leave the run to others; an attempt cut short this way counts nothing. Raises ApiError.

        Nothing is done for a run that is not ours any more.
        """
        if self.lost:
            return
        version = self.entry.version
        try:
            if self.run is not None:
                if self._claimed and self.run.status.phase == Phase.RUNNING:
                    called = self._called
                    self.run = await self._desk.recorder.save(
                        self.run, lambda status: with_release(status, called=called)
                    )
                    _LOG.info(
                        "run %s is handed over in attempt %d", self.entry.name, self.run.status.attempts
                    )
                if self.run.status.finished:
                    return
                version = self.run.metadata.resource_version
            await self._desk.recorder.unassign(self.entry.name, self.entry.assignee, version)
        except Dropped as why:
            _LOG.info("run %s is dropped: %s", self.entry.name, why)

    async def _carry_out(self) -> datetime | None:
        run = await self._read()
        later = run.status.next_attempt_time
        if run.status.phase == Phase.RETRYING and later is not None and later > self._now():
            return later
        self._check_fence()
        if self._desk.policy.exhausted(run.status):
            await self._save(lambda status: with_exhaustion(status, self._now()))
            _LOG.warning("run %s failed for good: %s", self.entry.name, self._status.last_error)
            return None
        self._called = run.status.started
        must_confirm = run.spec.trigger == "schedule" and not run.status.started
        if run.spec.created_by is not None:
            self._confirmed_at = run.spec.created_by.confirmed_at
        if must_confirm and not await self._still_enabled():
            return None
        self._check_fence()
        self._check_stop()
        await self._save(lambda status: with_attempt(status, self.entry.assignee, self._now()))
        self._claimed = True
        _LOG.info("run %s: attempt %d begins", self.entry.name, self._status.attempts)
        if must_confirm and not await self._still_enabled_for_sure():
            return None
        return await self._call_astrabox()

    async def _call_astrabox(self) -> datetime | None:
        assert self.run is not None
        calls = self._desk.calls
        try:
            decode_payload(self.run.spec.payload)
            if self._status.session_id is None:
                self._before_call()
                session_id = await calls.start_session(self.run)
                await self._save(lambda status: with_session(status, session_id))
                _LOG.info("run %s has Session %s", self.entry.name, session_id)
            assert self._status.session_id is not None
            self._before_call()
            turn = await calls.admit_turn(self.run, self._status.session_id)
        except CallFailedError as failure:
            return await self._failed(str(failure), permanent=failure.permanent)
        except PayloadError as error:
            return await self._failed(str(error), permanent=True)
        await self._save(lambda status: with_turn(status, turn.turn_id, turn.command_id, self._now()))
        _LOG.info("run %s has succeeded with turn %s", self.entry.name, turn.turn_id)
        return None

    async def _failed(self, error: str, *, permanent: bool) -> datetime | None:
        policy = self._desk.policy
        await self._save(
            lambda status: with_failure(status, error, permanent=permanent, policy=policy, now=self._now())
        )
        if self._status.finished:
            _LOG.warning("run %s failed for good: %s", self.entry.name, error)
        else:
            _LOG.info("run %s: attempt %d failed: %s", self.entry.name, self._status.attempts, error)
        return self._status.next_attempt_time

    async def _still_enabled(self) -> bool:
        """Look at the schedule again unless that was done a moment ago; a run of a disabled one is cancelled.

        Raises ApiError when it cannot be looked at.
        """
        assert self.run is not None
        if self._confirmed_at is not None and self._now() - self._confirmed_at <= _START_MAX_AGE:
            return True
        schedule = deployment_key(self.run.spec.deployment_id)
        confirmed = await self._desk.confirming.enabled(schedule)
        if confirmed is not None:
            self._confirmed_at = confirmed
            return True
        await self._save(
            lambda status: with_cancellation(status, DISABLED_REASON, DISABLED_MESSAGE, self._now())
        )
        _LOG.info("run %s is cancelled: its schedule is disabled or gone", self.entry.name)
        return False

    async def _still_enabled_for_sure(self) -> bool:
        """The same once the run is claimed: from then on it must not be let go without an answer."""
        pauses = Pauses(self._desk.timing)
        while True:
            try:
                if not await self._still_enabled():
                    return False
            except ApiError as error:
                self._before_call(begins=False)
                await asyncio.sleep(pauses.next(error.retry_after))
                continue
            if self._confirmed_at is not None and self._now() - self._confirmed_at <= _START_MAX_AGE:
                return True

    async def _read(self) -> RunInvocation:
        if self.run is None:
            try:
                self.run = await self._desk.runs.get(self.entry.name)
            except NotFound as error:
                if error.reason == "NotServed":
                    raise
                raise Dropped("it was deleted") from error
        if self.run.metadata.labels.get(ASSIGNEE_LABEL) != self.entry.assignee:
            raise Dropped("it has another assignee")
        if self.run.status.finished or not isinstance(self.run.status.phase, Phase):
            raise Dropped(f"it is {self.run.status.phase}")
        return self.run

    async def _save(self, change: Callable[[RunStatus], RunStatus]) -> None:
        assert self.run is not None
        self.run = await self._desk.recorder.save(self.run, change)

    def _before_call(self, *, begins: bool = True) -> None:
        self._check_fence()
        self._check_stop()
        self._called = self._called or begins

    def _check_fence(self) -> None:
        fence = self._desk.fence
        if not fence.held() or fence.lapses != self.entry.lapses:
            raise Dropped("the Lease under which it was taken in is not held any more")

    def _check_stop(self) -> None:
        if self._desk.stopping():
            raise HandedOver

    @property
    def _status(self) -> RunStatus:
        assert self.run is not None
        return self.run.status

    def _now(self) -> datetime:
        return self._desk.clock.now()
