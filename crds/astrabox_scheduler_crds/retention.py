"""Which finished runs may be deleted."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from astrabox_scheduler_crds.metadata import ObjectRef

DEFAULT_KEEP = 200


def expired_runs(
    finished: Iterable[ObjectRef], *, keep: int, floor: timedelta, now: datetime
) -> list[ObjectRef]:
    """The finished runs to delete, oldest first: beyond the newest `keep` of their Deployment.

    Never one younger than `floor` (twice the catch-up window): its name still guards its due time
    against a replica that has it in hand.
    """
    by_deployment: defaultdict[str, list[ObjectRef]] = defaultdict(list)
    for run in finished:
        by_deployment[run.deployment].append(run)
    expired = [
        run
        for runs in by_deployment.values()
        for run in sorted(runs, key=_age_key, reverse=True)[keep:]
        if run.created is not None and now - run.created >= floor
    ]
    return sorted(expired, key=_age_key)


def _age_key(run: ObjectRef) -> tuple[float, str]:
    return (run.created.timestamp() if run.created else 0.0, run.name)
