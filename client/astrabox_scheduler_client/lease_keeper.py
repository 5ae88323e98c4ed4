"""Keeps this process's Lease from a thread of its own, so that a busy event loop does not lose it."""

import asyncio
import concurrent.futures
import logging
import threading
from contextlib import suppress
from datetime import datetime
from typing import Final

from astrabox_scheduler_client.connect import ConnectSettings, connect
from astrabox_scheduler_client.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    ConnectError,
    NotFound,
    Unreachable,
)
from astrabox_scheduler_client.lease_term import LeaseTerm, Renewal, jitter_of, monotonic, seconds_to_next
from astrabox_scheduler_client.leases import Leases
from astrabox_scheduler_client.transport import Transport
from astrabox_scheduler_crds.lease import LEASE_DURATION_SECONDS, RENEW_PERIOD_SECONDS, Lease, Role
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.server_clock import ServerClock

LOOP_DEAD_SECONDS: Final = 120.0
_RETRY_SECONDS: Final = 1.0
_RELEASE_SECONDS: Final = 2.0
_MAX_NAMES: Final = 20
_LOG = logging.getLogger(__name__)


class _StoppingError(Exception):
    """The release has begun, and does not wait for the next call of a renewal."""


class _Life:
    """The thread of one Lease, from its start to its end."""

    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self.ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        # Running futures cannot be cancelled: whoever stops waiting for one leaves it to the thread.
        self.started.set_running_or_notify_cancel()
        self.ended.set_running_or_notify_cancel()


class LeaseKeeper:
    """One process's Lease, for one life of the process: `identity` is never used by another one.

    `duration` and `period` in seconds. The owner calls `beat` from its event loop; when that has not
    happened for `loop_dead_after` seconds the Lease is left to run out. `held`, `lapses` and `name`
    may be read from any thread at any time and cost no IO.

    A lapse because the API server was away leaves the Lease what it is: this process was there. If the
    process itself stood still, it goes on as a new object, named `<identity>-2` and so on, and the old
    one keeps the interval in which it was there. Whoever uses `name` reads it again after a lapse.

    After `release` another `start` takes a new Lease, under the next free of these names.
    """

    def __init__(
        self,
        settings: ConnectSettings,
        namespace: str | None,
        role: Role,
        identity: str,
        *,
        duration: float = LEASE_DURATION_SECONDS,
        period: float = RENEW_PERIOD_SECONDS,
        loop_dead_after: float = LOOP_DEAD_SECONDS,
        clock: ServerClock | None = None,
    ) -> None:
        """Raises ValueError for an identity that cannot name a Lease, or a period too long to keep it."""
        if not 0 < 2 * period <= duration:
            raise ValueError("a Lease is renewed at least twice in its duration")
        self._settings = settings
        self._namespace = namespace
        self._role: Role = role
        self._period = period
        # Of one call, in seconds: so that after one without an answer a second still comes in time.
        self._limit = max(0.8 * period, 0.4 * (duration - period))
        # Of a renewal: three calls where the version has changed. Cut short in the last one, it might be
        # stored each time and never answered: live for others, and not held here. With the pause before the
        # next one it stays below the duration, or this process would be taken for one that stood still.
        self._limit_of_all = min(3 * self._limit, duration - min(period, _RETRY_SECONDS))
        self._dead_after = loop_dead_after
        self._clock = clock or ServerClock()
        self._jitter = jitter_of(identity)
        self._term = LeaseTerm(identity, role, duration)
        self._beaten = monotonic()
        self._stopping = threading.Event()
        self._wake: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._life: _Life | None = None
        self._failing = False

    @property
    def name(self) -> str:
        """Name of the Lease in use now; another one after this process stood still for its duration."""
        return self._term.name

    @property
    def lapses(self) -> int:
        """How often the Lease was lost; what was begun under an older number must not go on."""
        return self._term.lapses(monotonic())

    @property
    def acquired(self) -> datetime | None:
        """Since when this process is there without a gap (aware UTC); None while it is not held."""
        return self._term.acquired(monotonic())

    def held(self) -> bool:
        """Whether the Lease is surely ours: the last successful renewal *began* less than `duration` ago.

        By a clock that goes on while the process, or the whole host, is suspended.
        """
        return not self._stopping.is_set() and self._term.held(monotonic())

    def beat(self) -> None:
        """Tell that the owner's event loop is alive."""
        self._beaten = monotonic()

    def drain(self) -> None:
        """Mark the Lease at once: this process is stopping and is to be assigned nothing more."""
        self._term.drain()
        self._wake_thread()

    async def start(self, timeout: float = 10.0) -> None:  # noqa: ASYNC109 - it bounds a thread, which no cancellation ends
        """Start the thread and wait for the Lease's creation, `timeout` seconds at most.

        Raises ApiError or ConnectError; then nothing is left behind. Not twice without `release` between.
        """
        if self._life is not None:
            await self._until_ended(self._life, timeout)
        self.beat()
        self._failing = False
        self._stopping.clear()
        self._life = life = _Life()
        life.thread = threading.Thread(target=self._run, args=(life,), name=f"lease {self.name}", daemon=True)
        life.thread.start()
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wrap_future(life.started)
        except TimeoutError:
            await self.release()
            raise Unreachable(f"the Lease was not created within {timeout:g} s", reason="Timeout") from None
        except BaseException:
            await self.release()
            raise

    async def release(self, timeout: float = 8.0) -> None:  # noqa: ASYNC109 - as above
        """Give the Lease up and end the thread, within `timeout` seconds; may be called again.

        The object stays, without a holder and renewed up to now, so that the interval can be read.
        Errors are logged: then it runs out by itself.
        """
        self._stopping.set()
        life = self._life
        if life is None or life.thread is None:
            return
        self._wake_thread()
        try:
            async with asyncio.timeout(timeout):
                await asyncio.wrap_future(life.ended)
        except TimeoutError:
            _LOG.warning("the Lease %s could not be released within %g s", self.name, timeout)
        else:
            life.thread.join(1.0)

    async def _until_ended(self, life: _Life, seconds: float) -> None:
        """A release that took too long leaves its thread to end by itself."""
        if not self._stopping.is_set():
            raise RuntimeError("this Lease is kept already")
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wrap_future(life.ended)
        except TimeoutError:
            raise Unreachable("the last Lease is still being released", reason="Timeout") from None

    def _wake_thread(self) -> None:
        if self._wake is not None:
            loop, event = self._wake
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                return  # the thread has ended by itself

    def _run(self, life: _Life) -> None:
        """The thread."""
        try:
            asyncio.run(self._keep(life))
        except BaseException as error:  # noqa: BLE001 - handed to the owner, who waits in another thread
            if life.started.done():
                _LOG.exception("the Lease is not kept any more")
            else:
                life.started.set_exception(error)
        finally:
            life.ended.set_result(None)

    async def _keep(self, life: _Life) -> None:
        wake = asyncio.Event()
        self._wake = asyncio.get_running_loop(), wake
        connection = await connect(self._settings)
        try:
            transport = Transport(connection, self._clock, self._limit, self._role)
            leases = Leases(transport, self._namespace or connection.namespace)
            # Any answer tells the API server's time, and the first Lease is written in it.
            await _get(leases, self.name)
            with suppress(_StoppingError):
                await self._renew(leases)
            life.started.set_result(None)
            while not self._stopping.is_set():
                await _wait(wake, self._pause())
                wake.clear()
                if not self._stopping.is_set() and self._owner_alive():
                    await self._try_to_renew(leases)
            await self._give_up(leases)
        finally:
            await connection.close()

    def _pause(self) -> float:
        """Seconds until the next renewal is due."""
        pause = seconds_to_next(self._clock.timestamp(), self._period, self._jitter)
        if self._failing:
            return min(pause, _RETRY_SECONDS)
        # A renewal that took long has left little of the Lease: the next call has to fit into it.
        return min(pause, max(0.0, self._term.left(monotonic()) - self._limit))

    def _owner_alive(self) -> bool:
        silent = monotonic() - self._beaten
        if silent < self._dead_after:
            return True
        _LOG.error(
            "the event loop has been blocked for %.0f s: the Lease %s is left to run out", silent, self.name
        )
        return False

    async def _try_to_renew(self, leases: Leases) -> None:
        try:
            await self._renew(leases)
        except _StoppingError:
            return
        except Exception as error:  # noqa: BLE001 - logged: this thread is the process's presence and must go on
            if not self._failing:
                known = isinstance(error, (ApiError, ConnectError))
                _LOG.warning(
                    "the Lease %s could not be renewed, trying on: %s",
                    self.name,
                    error,
                    exc_info=None if known else error,
                )
            self._failing = True
        else:
            if self._failing:
                _LOG.info("the Lease %s is renewed again", self.name)
            self._failing = False
            if not self._stopping.is_set():  # else it is done with the release, in its time
                await self._release_ended(leases)

    async def _renew(self, leases: Leases) -> None:
        """Store one renewal, under another name if need be. Raises ApiError.

        Raises _StoppingError instead of making a call once the release has begun: that waits for one at most.
        """
        try:
            async with asyncio.timeout(self._limit_of_all):
                for _ in range(_MAX_NAMES):
                    self._check_stop()
                    begun = monotonic()
                    stored = await self._store(leases, self._term.renewal(begun, self._clock.now()))
                    # False: the term was over when the answer came, because this process was stopped.
                    if stored is not None and self._term.renewed(*stored, begun, monotonic()):
                        return
        except TimeoutError:
            raise Unreachable(
                f"the Lease was not stored within {self._limit_of_all:g} s", reason="Timeout"
            ) from None
        raise AlreadyExists(f"{_MAX_NAMES} Leases with this identity are there: identities must be unique")

    async def _store(self, leases: Leases, renewal: Renewal) -> tuple[Renewal, ObjectMeta] | None:
        """What was stored, None if the name belongs to somebody else."""
        if renewal.lease.metadata.resource_version is None:
            return await self._create(leases, renewal)
        try:
            return renewal, await leases.replace(renewal.lease)
        except NotFound:
            found = None
        except Conflict:  # also the answer for a Lease that was deleted
            self._check_stop()
            found = await _get(leases, renewal.lease.metadata.name)
        self._check_stop()
        if found is None:
            return await self._create(leases, renewal.recreated())
        renewal = renewal.on_top_of(found.metadata)
        return renewal, await leases.replace(renewal.lease)

    async def _create(self, leases: Leases, renewal: Renewal) -> tuple[Renewal, ObjectMeta] | None:
        try:
            return renewal, await leases.create(renewal.lease)
        except AlreadyExists:
            self._check_stop()
            found = await leases.get(renewal.lease.metadata.name)
        adopted = renewal.adopting(found)
        if adopted is None:
            self._term.skip_name(renewal)
            return None
        self._check_stop()
        return adopted, await leases.replace(adopted.lease)

    def _check_stop(self) -> None:
        if self._stopping.is_set():
            raise _StoppingError

    async def _give_up(self, leases: Leases) -> None:
        last = self._term.end(monotonic(), self._clock.now())
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._release_ended(leases)
                if last is not None:
                    await self._write_last(leases, last)
        except (ApiError, TimeoutError) as error:
            _LOG.warning("the Lease %s was not released and will run out: %s", self.name, error)

    async def _release_ended(self, leases: Leases) -> None:
        """Leases of terms that are over name no holder any more, so that nobody waits for them.

        In the time of one call: neither the next renewal nor a stop is late for them.
        """
        try:
            async with asyncio.timeout(self._limit):
                for lease in self._term.take_ended():
                    await self._release_one(leases, lease)
        except TimeoutError:
            _LOG.info("former Leases keep their holder: not written within %g s", self._limit)

    async def _release_one(self, leases: Leases, lease: Lease) -> None:
        try:
            await self._write_last(leases, lease.changed(spec=lease.spec.changed(holder_identity=None)))
        except ApiError as error:
            _LOG.info("the Lease %s keeps its holder: %s", lease.metadata.name, error)

    async def _write_last(self, leases: Leases, lease: Lease) -> None:
        try:
            await leases.replace(lease)
        except Conflict:
            found = await leases.get(lease.metadata.name)
            metadata = lease.metadata.changed(resource_version=found.metadata.resource_version)
            await leases.replace(lease.changed(metadata=metadata))


async def _get(leases: Leases, name: str) -> Lease | None:
    try:
        return await leases.get(name)
    except NotFound:
        return None


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
