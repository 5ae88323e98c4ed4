"""Everything that is taken from AstraBox, in one place: another shape of the seam is a change here.

The real module is checked against what this provider was written for when AstraBox starts, so that
a difference shows there and not at the first due time.
"""

import dataclasses
import inspect
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any, Final

try:
    from astrabox.seams import scheduler as _seam
    from astrabox.seams.scheduler import (
        AdmittedTurn,
        InvalidSchedule,
        RunHandler,
        RunInvocation,
        RunPermanentError,
        RunStatus,
        Schedule,
        ScheduleCapacityExceeded,
        ScheduledRun,
        SchedulerConfigurationError,
        SchedulerProperties,
        SchedulerProvider,
        SchedulerUnavailable,
    )
except ImportError as error:
    raise ImportError(
        f"the scheduler provider `kubernetes` does not fit the installed AstraBox ({error}): "
        "install the release of astrabox-scheduler-kubernetes that goes with it"
    ) from error

__all__ = [
    "AdmittedTurn",
    "InvalidSchedule",
    "RunHandler",
    "RunInvocation",
    "RunPermanentError",
    "RunStatus",
    "Schedule",
    "ScheduleCapacityExceeded",
    "ScheduledRun",
    "SchedulerConfigurationError",
    "SchedulerProperties",
    "SchedulerProvider",
    "SchedulerUnavailable",
    "differences",
]

_READ: Final[dict[str, tuple[str, ...]]] = {
    "Schedule": ("deployment_id", "cron", "timezone", "enabled", "payload"),
    "AdmittedTurn": ("turn_id", "command_id"),
}
"""Values that AstraBox makes and we read."""

_MADE: Final[dict[str, tuple[str, ...]]] = {
    "SchedulerProperties": ("recovery_scope", "max_active_schedules", "pause_visibility_seconds"),
    "RunInvocation": (
        *("run_id", "deployment_id", "trigger", "scheduled_for", "payload", "replayed_from_run_id"),
    ),
    "ScheduledRun": (
        *("run_id", "deployment_id", "trigger", "status", "scheduled_for", "payload", "session_id"),
        *("turn_id", "error", "created_at", "replayed_from_run_id"),
    ),
}
"""Values that we make, by keyword."""

_HANDLER: Final[Mapping[str, int]] = {"start_session": 1, "admit_turn": 2}
"""What we call, and with how many positional arguments."""

_ERRORS: Final = (
    *("SchedulerUnavailable", "InvalidSchedule", "ScheduleCapacityExceeded"),
    *("SchedulerConfigurationError", "RunPermanentError"),
)


def differences(provider: type, seam: ModuleType | Any = _seam) -> list[str]:
    """Return how the seam differs from the one that `provider` was written for; empty when it fits."""
    return [
        *_of_values(seam),
        *_of_errors(seam),
        *_of_handler(seam),
        *_of_provider(seam, provider),
    ]


def _of_values(seam: Any) -> Iterator[str]:
    for name, wanted in (_READ | _MADE).items():
        fields = _fields(getattr(seam, name, None))
        if fields is None:
            yield f"{name} is not a dataclass"
            continue
        if missing := [each for each in wanted if each not in fields]:
            yield f"{name} has no field {', '.join(missing)}"
        required = [each for each, needed in fields.items() if needed and each not in wanted]
        if name in _MADE and required:
            yield f"{name} also requires {', '.join(required)}"


def _fields(cls: Any) -> dict[str, bool] | None:
    """Field names and whether a value must be given; None for what is no dataclass."""
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        return None
    absent = dataclasses.MISSING
    return {
        each.name: each.init and each.default is absent and each.default_factory is absent
        for each in dataclasses.fields(cls)
    }


def _of_errors(seam: Any) -> Iterator[str]:
    for name in _ERRORS:
        cls = getattr(seam, name, None)
        if not (isinstance(cls, type) and issubclass(cls, Exception)):
            yield f"{name} is not an exception"


def _of_handler(seam: Any) -> Iterator[str]:
    handler = getattr(seam, "RunHandler", None)
    for name, count in _HANDLER.items():
        method = getattr(handler, name, None)
        if method is None:
            yield f"RunHandler has no {name}"
        elif not _accepts(method, [None] * (count + 1), {}):
            yield f"RunHandler.{name} does not take {count} arguments"


def _of_provider(seam: Any, provider: type) -> Iterator[str]:
    base = getattr(seam, "SchedulerProvider", None)
    if not isinstance(base, type):
        yield "SchedulerProvider is not a class"
        return
    for name in sorted(getattr(base, "__abstractmethods__", frozenset())):
        ours = inspect.getattr_static(provider, name, None)
        theirs = inspect.getattr_static(base, name)
        if ours is None or getattr(ours, "__isabstractmethod__", False):
            yield f"SchedulerProvider also requires {name}"
        elif inspect.isfunction(theirs) and inspect.isfunction(ours):
            yield from _of_method(name, ours, theirs)


def _of_method(name: str, ours: Any, theirs: Any) -> Iterator[str]:
    """Every call that the declared signature allows must fit ours, and be awaited or not as ours is."""
    if inspect.iscoroutinefunction(ours) != inspect.iscoroutinefunction(theirs):
        kind = "a coroutine function" if inspect.iscoroutinefunction(theirs) else "a plain function"
        yield f"SchedulerProvider.{name} is {kind}"
    parameters = inspect.signature(theirs).parameters.values()
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    keywords = {p.name: None for p in parameters if p.kind is p.KEYWORD_ONLY}
    by_name = {p.name: None for p in positional[1:] if p.kind is p.POSITIONAL_OR_KEYWORD}
    if not _accepts(ours, [None] * len(positional), keywords) or not _accepts(
        ours, [None], by_name | keywords
    ):
        yield f"SchedulerProvider.{name} has the signature {inspect.signature(theirs)}"


def _accepts(function: Any, positional: list[None], keywords: Mapping[str, None]) -> bool:
    try:
        inspect.signature(function).bind(*positional, **keywords)
    except TypeError:
        return False
    return True
