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
        try:
            async with asyncio.timeout(timeout) as limit:
                return await call()
        except RunPermanentError as error:
            raise CallFailedError(_text(error), permanent=True, told=type(error).__name__) from error
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise  # it is us who are cancelled
            raise CallFailedError(f"{name} was cancelled inside AstraBox", permanent=False) from error
        except Exception as error:
            # Whatever AstraBox raises is a failure of this run, and of no other.
            late = f"{name} did not answer within {timeout:g} seconds"
            if limit.expired():
                raise CallFailedError(late, permanent=False) from error
            raise CallFailedError(_text(error), permanent=False, told=type(error).__name__) from error


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
