"""One attempt at one run: the order of checks, writes and calls that the guarantees rest on.

    due in our time? -> confirmed recently? -> claim (saved) -> still confirmed recently? ->
    start_session -> save the Session -> admit_turn -> save the turn

The claim is saved before AstraBox is called, so that a run that kills its process uses up its
attempts. No call is made while the Lease is not held, nor after a stop has begun. A claim under
which no call was made is taken back, whatever ended the attempt: a run that was never started is
to be confirmed again by whoever has it next (G5).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Protocol

from astrabox_scheduler_client.errors import (
    ApiError,
    Conflict,
    Forbidden,
    MalformedAnswer,
    NotFound,
    NotServed,
)
from astrabox_scheduler_crds.firing import START_MAX_AGE_SECONDS
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.payload import PayloadError, decode_payload
from astrabox_scheduler_crds.recovery import Orphan
from astrabox_scheduler_crds.run import Phase, RunInvocation, RunStatus
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_crds.transitions import (
    Cancellation,
    RetryPolicy,
    status_patch,
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
from astrabox_scheduler_kubernetes.suspects import Suspects, Trial
from astrabox_scheduler_kubernetes.telling import Told, Trouble, said
from astrabox_scheduler_kubernetes.timing import Pauses, SharedPauses, Timing
from astrabox_scheduler_kubernetes.waiting import Entry

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")
_START_MAX_AGE = timedelta(seconds=START_MAX_AGE_SECONDS)
_TRIES = 4


def _taking_back() -> Trouble:
    return Trouble("the claim of run {} cannot be taken back", "claims of runs can be taken back again")


def _looking() -> Trouble:
    return Trouble(
        "the schedule of run {} cannot be looked at", "the schedules of runs can be looked at again"
    )


class _GivenUpError(Exception):
    """What cannot be done is not tried on, and not told as done."""


class Fence(Protocol):
    """What `astrabox_scheduler_client.lease_keeper.LeaseKeeper` says about our Lease."""

    @property
    def name(self) -> str:
        """Name of the Lease in use."""

    @property
    def lapses(self) -> int:
        """How often it was lost."""

    @property
    def acquired(self) -> datetime | None:
        """Since when it is ours without a gap (aware UTC), None while it is not."""

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
    settle: Callable[[RunInvocation, datetime], Awaitable[Orphan]]
    """What becomes of a run due before the given time, at which our Lease was acquired. Raises ApiError."""
    fence: Fence
    calls: Calls
    policy: RetryPolicy
    suspects: Suspects
    clock: ServerClock
    timing: Timing
    again: SharedPauses
    stopping: Callable[[], bool]
    told: Told = field(default_factory=Told)
    taking_back: Trouble = field(default_factory=_taking_back)
    looking: Trouble = field(default_factory=_looking)


class Attempt:
    """Carries one run one attempt further."""

    def __init__(self, entry: Entry, desk: Desk) -> None:
        self.entry = entry
        self.run = entry.run
        """As it was last read or written."""
        self.lost = False
        """Set by whoever cancels the attempt because the run is not ours any more."""
        self.waits = False
        """Whether it waits for its turn among suspects: a stop may cancel it, nothing is begun."""
        self._desk = desk
        self._claim: RunStatus | None = None
        """What was to be saved as the claim; whether it was is told by `run`, or by another look."""
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
            name = self.entry.name
            version = self.entry.version if self.run is None else self.run.metadata.resource_version
            told = partial(self._desk.told.level, name=name, version=version, about=type(error))
            if error.permanent or isinstance(error, MalformedAnswer):
                self.lost = True  # the sweep takes it up again as long as it is ours
                _LOG.log(told(logging.ERROR), "run %s cannot be read or written: %s", name, said(error))
                return None
            _LOG.log(told(logging.WARNING), "run %s waits, its state cannot be read: %s", name, error)
            return self._desk.again.failed(self._now(), error.retry_after)

    async def hand_over(self) -> None:
        """Leave the run to others; an attempt cut short this way counts nothing. Raises ApiError.

        Nothing but a claim taken back for a run that is not ours any more.
        """
        await self.take_back()
        if self.lost:
            return
        name, version = self.entry.name, self.entry.version
        try:
            for _ in range(_TRIES):
                if self.run is not None:
                    if self._claim_stands(self.run.status):
                        await self._save(lambda status: with_release(status, called=self._called))
                        _LOG.info("run %s is handed over in attempt %d", name, self._status.attempts)
                    if self.run.status.finished:
                        return
                    version = self.run.metadata.resource_version
                if await self._desk.recorder.unassign(name, version):
                    return
                # Changed since: by somebody, or by a claim that was cut off and has arrived after all.
                self.run = await self._desk.runs.get(name)
                if self.run.metadata.labels.get(ASSIGNEE_LABEL) != self.entry.assignee:
                    return
        except NotFound:
            return
        except Dropped as why:
            _LOG.info("run %s is dropped: %s", name, why)

    @property
    def untouched(self) -> bool:
        """Whether the run may be stored as begun though AstraBox was never called for it."""
        return self._claim is not None and not self._called

    async def take_back(self) -> None:
        """Undo a claim under which AstraBox was never called, whoever has the run by now.

        The version decides: whoever has gone on with it since keeps it. Tries until that is known, or
        the store refuses for good.
        """
        if not self.untouched or self.run is None or self.run.status.finished:
            return
        with suppress(_GivenUpError), self._desk.taking_back.of(self.entry.name) as failed:
            await self._take_back(self.run if self.run.status == self._claim else None, failed)

    async def _take_back(self, run: RunInvocation | None, failed: Callable[[Exception], None]) -> None:
        pauses = Pauses(self._desk.timing)
        while True:
            try:
                run = run or await self._desk.runs.get(self.entry.name)
                if run.status == self._claim:
                    self.run = await self._freed(run)
                    _LOG.info("run %s was claimed and not started: the claim is taken back", self.entry.name)
            except ApiError as error:
                if error.permanent and not isinstance(error, (Conflict, Forbidden, NotServed)):
                    if not isinstance(error, NotFound):
                        _LOG.warning("the claim of run %s cannot be taken back: %s", self.entry.name, error)
                    raise _GivenUpError from error
                run = None
                failed(error)
                await asyncio.sleep(pauses.next(error.retry_after))
                continue
            return

    async def _freed(self, run: RunInvocation) -> RunInvocation:
        status = with_release(run.status, called=False)
        patch, version = status_patch(run.status, status), run.metadata.resource_version
        metadata = await self._desk.runs.patch_status(self.entry.name, patch, version)
        return run.changed(metadata=metadata, status=status)

    def _claim_stands(self, status: RunStatus) -> bool:
        """Whether the attempt is the latest one, and not released."""
        claim = self._claim
        return (
            claim is not None
            and status.phase == Phase.RUNNING
            and (status.attempts, status.releases) == (claim.attempts, claim.releases)
        )

    async def _carry_out(self) -> datetime | None:
        run = await self._read()
        later = run.status.next_attempt_time
        if run.status.phase == Phase.RETRYING and later is not None and later > self._now():
            return later
        self._check_fence()
        if self._desk.policy.exhausted(run.status):
            await self._save(lambda status: with_exhaustion(status, self._now()))
            _LOG.warning("run %s failed for good: its retries are used up", self.entry.name)
            return None
        self._check_stop()
        self.waits = True
        async with self._desk.suspects.turn(run.status) as trial:
            self.waits = False
            return await self._begin(run, trial)

    async def _begin(self, run: RunInvocation, trial: Trial) -> datetime | None:
        scheduled = run.spec.trigger == "schedule"
        if scheduled and not run.status.started and await self._settled(run) is not Orphan.ADOPT:
            return self._now() + timedelta(seconds=self._desk.timing.recheck)
        if run.spec.created_by is not None:
            self._confirmed_at = run.spec.created_by.confirmed_at
        if scheduled and not run.status.started and not await self._still_enabled():
            return None
        if self.entry.run is None:  # what was read is a success only now: the look could still have failed
            self._desk.again.worked()
        self._check_fence()
        self._check_stop()
        await self._save(self._begun)
        _LOG.info("run %s: attempt %d begins", self.entry.name, self._status.attempts)
        if scheduled and not self._called and not await self._still_enabled_for_sure():
            return None
        return await self._call_astrabox(trial)

    def _begun(self, status: RunStatus) -> RunStatus:
        """The claim on top of `status`, which may be newer than what was read at first."""
        self._called = status.started
        self._claim = with_attempt(status, self.entry.assignee, self._now())
        return self._claim

    async def _settled(self, run: RunInvocation) -> Orphan:
        """What becomes of a scheduled run that was never started, if it was due before our time.

        Somebody assigned it to us, but the one who was there at the due time may only have looked alive.
        """
        acquired, due = self._desk.fence.acquired, run.spec.due_time
        if acquired is None or due is None or due >= acquired:
            return Orphan.ADOPT
        return await self._desk.settle(run, acquired)

    async def _call_astrabox(self, trial: Trial) -> datetime | None:
        assert self.run is not None
        calls = self._desk.calls
        try:
            decode_payload(self.run.spec.payload)
            if self._status.session_id is None:
                self._before_call()
                trial.called()
                session_id = await calls.start_session(self.run)
                await self._save(lambda status: with_session(status, session_id))
                trial.answered()
                _LOG.info("run %s has Session %s", self.entry.name, session_id)
            assert self._status.session_id is not None
            self._before_call()
            trial.called()
            turn = await calls.admit_turn(self.run, self._status.session_id)
        except CallFailedError as failure:
            return await self._failed(str(failure), failure.told, permanent=failure.permanent)
        except PayloadError as error:
            return await self._failed(str(error), str(error), permanent=True)
        await self._save(lambda status: with_turn(status, turn.turn_id, turn.command_id, self._now()))
        _LOG.info("run %s has succeeded with turn %s", self.entry.name, turn.turn_id)
        return None

    async def _failed(self, error: str, told: str, *, permanent: bool) -> datetime | None:
        policy = self._desk.policy
        await self._save(
            lambda status: with_failure(status, error, permanent=permanent, policy=policy, now=self._now())
        )
        if self._status.finished:
            _LOG.warning("run %s failed for good: %s", self.entry.name, told)
        else:
            _LOG.info("run %s: attempt %d failed: %s", self.entry.name, self._status.attempts, told)
        return self._status.next_attempt_time

    async def _still_enabled(self) -> bool:
        """Look at the schedule again unless that was done a moment ago; a run of a disabled one is cancelled.

        Raises ApiError when it cannot be looked at.
        """
        assert self.run is not None
        if self._confirmed_lately():
            return True
        schedule = deployment_key(self.run.spec.deployment_id)
        confirmed = await self._desk.confirming.enabled(schedule)
        self._desk.again.worked()
        if confirmed is not None:
            self._confirmed_at = confirmed
            return True
        await self._cancel(Cancellation.DISABLED)
        return False

    async def _still_enabled_for_sure(self) -> bool:
        """The same once the run is claimed: from then on it must not be let go without an answer."""
        pauses = Pauses(self._desk.timing)
        with self._desk.looking.of(self.entry.name) as failed:
            while True:
                try:
                    if not await self._still_enabled():
                        return False
                    if self._confirmed_lately():
                        return True
                    self._before_call(begins=False)
                except ApiError as error:
                    self._before_call(begins=False)
                    failed(error)
                    await asyncio.sleep(pauses.next(error.retry_after))

    def _confirmed_lately(self) -> bool:
        # In the future only by a hand: it would count for ever.
        return self._confirmed_at is not None and abs(self._now() - self._confirmed_at) <= _START_MAX_AGE

    async def _cancel(self, why: Cancellation) -> None:
        await self._save(lambda status: with_cancellation(status, why, self._now()))
        _LOG.info("run %s is cancelled: %s", self.entry.name, why.message)

    async def _read(self) -> RunInvocation:
        if self.run is None:
            try:
                self.run = await self._desk.runs.get(self.entry.name)
            except NotFound as error:
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
