"""Questions to the API server's audit log: who wrote which run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from astrabox_scheduler_crds import labels
from tests.faults.history.facts import History, Write


def writes_to_runs(
    history: History,
    by: Callable[[str], bool] = lambda _: True,
    after: float = 0.0,
    name: str | None = None,
) -> list[Write]:
    """Writes of some processes to runs."""
    return [
        write
        for write in history.writes
        if write.resource == labels.RUN_PLURAL
        and by(write.by)
        and write.received >= after
        and name in (None, write.name)
    ]


def creates(history: History) -> dict[str, list[Write]]:
    """The creates that were carried out, whether or not anybody lived to hear of it, by the run's name."""
    found: defaultdict[str, list[Write]] = defaultdict(list)
    for write in writes_to_runs(history):
        if write.verb == "create" and (write.succeeded or write.after is not None):
            found[write.name].append(write)
    return found


def refused_creates(history: History, by: str) -> list[Write]:
    """The creates of runs to which an operator heard that the name was there already."""
    mine = writes_to_runs(history, lambda name: name == by)
    return [write for write in mine if (write.verb, write.code) == ("create", 409)]
