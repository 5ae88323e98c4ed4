"""What becomes of runs whose process is gone, and of runs that nobody has taken."""

from datetime import datetime
from enum import Enum

from astrabox_scheduler_crds.presence import Presence
from astrabox_scheduler_crds.run import Phase, RunInvocation


class Orphan(Enum):
    """What to do with a run that has no live assignee."""

    ADOPT = "adopt"
    CANCEL = "cancel"
    WAIT = "wait"


def settle_orphan(run: RunInvocation, providers: Presence, now: datetime) -> Orphan:
    """Decide about a run that nobody is surely dispatching.

    A process that is killed looks alive until its Lease runs out, so a due time in that tail gets
    a run although nobody was running. Such a run, never started and at whose due time no provider
    was there, is cancelled (`Cancellation.NOBODY_THERE`, always possible then): otherwise it would start
    late when AstraBox comes back. Any other run goes on, and one that has ended, or is in a state that
    this version does not know, stays what it is. While a Lease may still be renewed nobody knows which it
    is: WAIT, for less than its duration; so does a run that a hand created before its due time.
    """
    due = run.spec.due_time
    if run.status.finished or not isinstance(run.status.phase, Phase):
        return Orphan.ADOPT
    if run.spec.trigger != "schedule" or due is None or run.status.started or providers.proves(due):
        return Orphan.ADOPT
    return Orphan.WAIT if due > now or providers.covers(due) else Orphan.CANCEL


def lease_is_needed(renewed: datetime | None, horizon: datetime) -> bool:
    """Whether a Lease that is no longer live must stay.

    Its interval says for which due times a process was there. That matters for due times that may
    still be caught up, and for those of scheduled runs that are not finished: `horizon` (aware) is
    the oldest of both.
    """
    return renewed is None or renewed >= horizon
