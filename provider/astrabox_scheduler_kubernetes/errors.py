"""The one place where failures of the store become errors of the seam.

Their texts are shown to users of AstraBox's API, so they say what was not done and what to do, and
nothing about the engine; the original is chained for the logs.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from pydantic import ValidationError

from astrabox_scheduler_client.errors import (
    AccessDenied,
    ApiError,
    ConnectError,
    Forbidden,
    QuotaExceeded,
    TooLarge,
)
from astrabox_scheduler_crds.deletion import DELETED_KEPT
from astrabox_scheduler_crds.payload import PayloadError
from astrabox_scheduler_kubernetes.seam import InvalidSchedule, ScheduleCapacityExceeded, SchedulerUnavailable
from astrabox_scheduler_kubernetes.telling import said

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")
_ROOM_AFTER = DELETED_KEPT // timedelta(minutes=1)
_NOT_PERMITTED = (
    "the scheduler lacks a right that this takes. Trying again does not help: an operator has to grant it, "
    "AstraBox's log says which and how."
)
_REFUSED = (
    "a rule of the scheduler's store refuses it. Trying again does not help until an operator has changed "
    "that: AstraBox's log has the refusal."
)
STORE_ERRORS = (ApiError, ConnectError, ValidationError, OSError, TimeoutError)
"""Everything by which a store can fail; anything else is a fault of this program and stays visible."""


@contextmanager
def in_seam_words(outcome: str) -> Iterator[None]:
    """Turn what fails inside into an error of the seam; `outcome` says what was not done."""
    try:
        yield
    except PayloadError as error:
        raise InvalidSchedule(f"{outcome}: {error}.") from error
    except (QuotaExceeded, TooLarge) as error:
        raise capacity_exceeded(outcome, error) from error
    except Forbidden as error:
        _LOG.warning("%s: %s", outcome.encode("unicode_escape").decode(), said(error))
        why = _NOT_PERMITTED if isinstance(error, AccessDenied) else _REFUSED
        raise SchedulerUnavailable(f"{outcome}: {why}") from error
    except STORE_ERRORS as error:
        raise unavailable(outcome) from error


def capacity_exceeded(outcome: str, error: QuotaExceeded | TooLarge) -> ScheduleCapacityExceeded:
    """The store refuses what is too much or too large."""
    if isinstance(error, TooLarge):
        return ScheduleCapacityExceeded(f"{outcome}: it is too large. Shorten the prompt.")
    return ScheduleCapacityExceeded(
        f"{outcome}: the scheduler's store is full. Delete what is not needed (a schedule makes room "
        f"{_ROOM_AFTER} minutes after it was deleted), or ask an operator for more."
    )


def unavailable(outcome: str) -> SchedulerUnavailable:
    """The store does not answer, refuses, or answers what makes no sense."""
    return SchedulerUnavailable(
        f"{outcome}: the scheduler's store is not available at the moment. Try again."
    )
