"""The two calls of AstraBox for one run: what they get, how long they may take, what counts as an answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from astrabox_scheduler_crds.metadata import bounded
from astrabox_scheduler_crds.payload import decode_payload
from astrabox_scheduler_crds.run import RunInvocation as StoredRun
from astrabox_scheduler_kubernetes.seam import AdmittedTurn, RunHandler, RunInvocation, RunPermanentError

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
    """Calls the handler; `timeout` in seconds for each call. Raises CallFailedError for every failure."""

    def __init__(self, handler: RunHandler, timeout: float) -> None:
        self._handler = handler
        self._timeout = timeout

    async def start_session(self, run: StoredRun) -> str:
        """Start the run's Session; its id."""
        value = await self._call(
            "start_session", lambda: self._handler.start_session(invocation(run)), timeout=self._timeout
        )
        return _id("start_session", "Session id", value)

    async def admit_turn(self, run: StoredRun, session_id: str) -> AdmittedTurn:
        """Admit the run's turn to the Session."""
        turn = await self._call(
            "admit_turn", lambda: self._handler.admit_turn(invocation(run), session_id), timeout=self._timeout
        )
        if not isinstance(turn, AdmittedTurn):
            raise CallFailedError(
                f"admit_turn answered {type(turn).__name__}, not AdmittedTurn", permanent=False
            )
        _id("admit_turn", "turn id", turn.turn_id)
        if turn.command_id is not None:
            _id("admit_turn", "command id", turn.command_id)
        return turn

    async def _call(self, name: str, call: Callable[[], Awaitable[_T]], *, timeout: float) -> _T:  # noqa: ASYNC109
        async def answer() -> _T:
            return await call()

        task = asyncio.current_task()
        assert task is not None
        # In a task of its own: whatever a handler does to the task it runs in, only we cancel this one.
        handler = asyncio.create_task(answer(), name=f"astrabox {name}")
        try:
            async with asyncio.timeout(timeout) as limit:
                return await handler
        except BaseException as error:
            if task.cancelling() or not handler.done():
                # By us, whatever the handler makes of it: the attempt is cut short, and has not failed.
                raise asyncio.CancelledError from error
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            # Whatever AstraBox raises is a failure of this run, and of no other.
            raise _failure(name, error, timeout if limit.expired() else None) from error


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
