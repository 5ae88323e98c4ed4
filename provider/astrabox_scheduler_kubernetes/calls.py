"""The two calls of AstraBox for one run: what they get, how long they may take, what counts as an answer."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from astrabox_scheduler_crds.metadata import bounded
from astrabox_scheduler_crds.payload import decode_payload
from astrabox_scheduler_crds.run import RunInvocation as StoredRun
from astrabox_scheduler_kubernetes.seam import AdmittedTurn, RunHandler, RunInvocation, RunPermanentError

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")
GRACE_SECONDS: Final = 10.0
"""How long a call that is cancelled may clear up before it is left behind."""
MAX_ID_LENGTH = 1024
"""Of the ids that AstraBox answers, in characters; as in the resource's schema."""
_T = TypeVar("_T")


class CallFailedError(Exception):
    """A call that did not do its work; the text goes into the ledger, `permanent` ends the run.

    `told` goes into the logs: of what AstraBox raised only the type, since its text can quote a prompt.
    """

    def __init__(self, text: str, *, permanent: bool, told: str = "") -> None:
        super().__init__(text)
        self.permanent = permanent
        self.told = told or text


def invocation(run: StoredRun) -> RunInvocation:
    """What AstraBox gets, made anew for each call, so that nothing a handler does to it is seen again.

    Raises PayloadError where the stored payload cannot be read.
    """
    return RunInvocation(
        run_id=run.metadata.name,
        deployment_id=run.spec.deployment_id,
        trigger=run.spec.trigger,
        scheduled_for=run.spec.due_time,
        payload=decode_payload(run.spec.payload),
        replayed_from_run_id=run.spec.replayed_from,
    )


class Calls:
    """Calls the handler; `timeout` in seconds for each call. Raises CallFailedError for every failure.

    A call that is still there `grace` seconds after it was cancelled, because its time is over or by us, is
    left to end by itself: else its run would stay in hand, and keep its place, until the process ends. The
    next attempt may begin beside it, since AstraBox knows a run that it is called for again by its id.
    """

    def __init__(self, handler: RunHandler, timeout: float, grace: float = GRACE_SECONDS) -> None:
        self._handler = handler
        self._timeout = timeout
        self._grace = grace
        self._left: set[asyncio.Task[Any]] = set()

    async def start_session(self, run: StoredRun) -> str:
        """Start the run's Session; its id."""
        value = await self._call("start_session", run, lambda: self._handler.start_session(invocation(run)))
        return _id("start_session", "Session id", value)

    async def admit_turn(self, run: StoredRun, session_id: str) -> AdmittedTurn:
        """Admit the run's turn to the Session."""
        turn = await self._call(
            "admit_turn", run, lambda: self._handler.admit_turn(invocation(run), session_id)
        )
        if not isinstance(turn, AdmittedTurn):
            raise CallFailedError(
                f"admit_turn answered {type(turn).__name__}, not AdmittedTurn", permanent=False
            )
        _id("admit_turn", "turn id", turn.turn_id)
        if turn.command_id is not None:
            _id("admit_turn", "command id", turn.command_id)
        return turn

    async def _call(self, name: str, run: StoredRun, call: Callable[[], Awaitable[_T]]) -> _T:
        async def answer() -> _T:
            return await call()

        task = asyncio.current_task()
        assert task is not None
        # In a task of its own: whatever a handler does to the task it runs in, only we cancel this one.
        handler = asyncio.create_task(answer(), name=f"astrabox {name}")
        with suppress(asyncio.CancelledError):  # which `cancelling` tells
            await asyncio.wait({handler}, timeout=self._timeout)
        expired = not handler.done() and not task.cancelling()
        if not await _ended(handler, self._grace):
            self._leave(handler, name, run.metadata.name)
        try:
            return handler.result()
        except BaseException as error:  # also of one that is left: it has no result
            if task.cancelling():
                # By us, whatever the handler makes of it: the attempt is cut short, and has not failed.
                raise asyncio.CancelledError from error
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            # Whatever AstraBox raises is a failure of this run, and of no other.
            raise _failure(name, error, self._timeout if expired else None) from error

    def cancel_left(self) -> None:
        """Cancel once more what was left behind: it may have swallowed no more than one cancellation."""
        for handler in tuple(self._left):
            handler.cancel()

    def _leave(self, handler: asyncio.Task[Any], call: str, run: str) -> None:
        """Nobody waits for it any more; whatever it answers is forgotten."""
        _LOG.error(
            "run %s: %s has not ended %g s after it was cancelled, and is left to end by itself: AstraBox's "
            "handler keeps its cancellation back. If such calls pile up, restart this AstraBox process",
            run,
            call,
            self._grace,
        )
        self._left.add(handler)
        handler.add_done_callback(self._forget)

    def _forget(self, handler: asyncio.Task[Any]) -> None:
        self._left.discard(handler)
        if not handler.cancelled():
            handler.exception()  # taken, so that asyncio does not tell its text, which can quote a prompt


async def _ended(handler: asyncio.Task[Any], seconds: float) -> bool:
    """Cancel it unless it has ended, and again whenever we are cancelled; False after so many seconds."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    while not handler.done() and (left := end - loop.time()) > 0:
        handler.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.wait({handler}, timeout=left)
    return handler.done()


def _failure(call: str, error: BaseException, timeout: float | None) -> CallFailedError:
    """What an ended call that raised means; `timeout` in seconds if it had run out by then."""
    if isinstance(error, RunPermanentError):
        return CallFailedError(_text(error), permanent=True, told=type(error).__name__)
    if timeout is not None:
        return CallFailedError(f"{call} did not answer within {timeout:g} seconds", permanent=False)
    if isinstance(error, asyncio.CancelledError):
        return CallFailedError(f"{call} was cancelled inside AstraBox", permanent=False)
    return CallFailedError(_text(error), permanent=False, told=type(error).__name__)


def _text(error: BaseException) -> str:
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a message that cannot be made must not hide the failure
        message = ""
    name = type(error).__name__
    return bounded(f"{name}: {message}" if message else name)


def _id(call: str, what: str, value: object) -> str:
    usable = isinstance(value, str) and 0 < len(value) <= MAX_ID_LENGTH
    if usable:
        assert isinstance(value, str)
        try:
            value.encode()
        except UnicodeEncodeError:
            usable = False
        else:
            return value
    raise CallFailedError(f"{call} answered no usable {what} ({type(value).__name__})", permanent=False)
