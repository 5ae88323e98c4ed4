"""Which finished runs may be deleted."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta

from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.metadata import ObjectMeta

DEFAULT_KEEP = 200


def expired_runs(
    finished: Iterable[ObjectMeta], *, keep: int, floor: timedelta, now: datetime
) -> list[ObjectMeta]:
    """The finished runs to delete, oldest first: beyond the newest `keep` of their Deployment.

    Never one younger than `floor` (twice the catch-up window): its name still guards its due time
    against a replica that has it in hand.
    """
    by_deployment: defaultdict[str, list[ObjectMeta]] = defaultdict(list)
    for meta in finished:
        by_deployment[meta.labels.get(labels.DEPLOYMENT_LABEL, "")].append(meta)
    expired = [
        meta
        for runs in by_deployment.values()
        for meta in sorted(runs, key=_age_key, reverse=True)[keep:]
        if meta.creation_timestamp is not None and now - meta.creation_timestamp >= floor
    ]
    return sorted(expired, key=_age_key)


def _age_key(meta: ObjectMeta) -> tuple[float, str]:
    created = meta.creation_timestamp
    return (created.timestamp() if created else 0.0, meta.name)
