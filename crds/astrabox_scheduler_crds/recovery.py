"""What becomes of runs whose process is gone, and of runs that nobody has taken."""

from datetime import datetime, timedelta
from enum import Enum

from astrabox_scheduler_crds.presence import Presence
from astrabox_scheduler_crds.run import Phase, RunInvocation


class Orphan(Enum):
    """What to do with a run that has no live assignee."""

    ADOPT = "adopt"
    CANCEL = "cancel"
    WAIT = "wait"


def settle_orphan(
    run: RunInvocation, providers: Presence, now: datetime, window: timedelta | None = None
) -> Orphan:
    """Decide about a run that nobody is surely dispatching.

    A process that is killed looks alive until its Lease runs out, so a due time in that tail gets
    a run although nobody was running. Such a run, never started and at whose due time no provider has
    shown that it was there, must not start: AstraBox came back later. It may still be shown, by a process
    that is cut off, until a due time is too old to fire, so it WAITs for that long, and is cancelled by
    whoever knows the `window` (operators; `Cancellation.NOBODY_THERE`, always possible then). Any other
    run goes on, and one that has ended, or is in a state that this version does not know, stays what it
    is. A run that a hand created before its due time waits as well.
    """
    due = run.spec.due_time
    if run.status.finished or not isinstance(run.status.phase, Phase):
        return Orphan.ADOPT
    if run.spec.trigger != "schedule" or due is None or run.status.started or providers.proves(due):
        return Orphan.ADOPT
    is_over = window is not None and now - due > window and not providers.covers(due)
    return Orphan.CANCEL if is_over else Orphan.WAIT


def lease_is_needed(renewed: datetime | None, horizon: datetime) -> bool:
    """Whether a Lease that is no longer live must stay.

    Its interval says for which due times a process was there. That matters for due times that may
    still be caught up, and for those of scheduled runs that are not finished: `horizon` (aware) is
    the oldest of both.
    """
    return renewed is None or renewed >= horizon
