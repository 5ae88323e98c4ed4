"""What became of each due time: how late its run may be, and that it has one, or none."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from astrabox_scheduler_crds import labels
from tests.faults.history.due import text
from tests.faults.history.facts import History, Object, Write
from tests.faults.scenes.processes import LEASE
from tests.faults.scenes.runs import run_name
from tests.faults.scenes.writes import creates, writes_to_runs
from tests.faults.stage.rig import Rig

LOADED: Final = 15.0
"""Seconds after its due time within which a run is created when many are, or processes start or end."""
HANDED_OVER: Final = 10.0 + 2.0 + 5.0
"""The same when its operator was told to end: it finishes what it has begun, for ten seconds at most,
and then the others list the Leases and look again."""
TAKEN_OVER: Final = LEASE + 13.0
"""The same when its operator was lost: a Lease's duration, and the time to notice and to look again."""
PAUSE_VISIBLE: Final = 5.0
"""pause_visibility_seconds: after a disable or delete nothing starts later than that."""


def assert_fired(history: History, deployments: Iterable[str], due: float, within: float) -> None:
    """Each has exactly one run of this due time, created at it or at most `within` seconds later."""
    made = creates(history)
    late = {}
    for deployment in deployments:
        writes = made.get(run_name(deployment, due), [])
        assert len(writes) == 1, (deployment, text(due), writes, _unclear_creates(history))
        late[deployment] = writes[0].received - due
    assert min(late.values()) >= 0, ("before its due time", text(due), min(late.values()))
    assert max(late.values()) <= within, ("later than allowed", text(due), max(late.values()), within)


def _unclear_creates(history: History) -> list[Write]:
    """Those that no answer and no object explains: a missing one is among them, if it was sent."""
    return [
        write
        for write in writes_to_runs(history)
        if write.verb == "create" and write.after is None and write.code != HTTPStatus.CONFLICT
    ]


def assert_not_fired(history: History, deployments: Iterable[str], dues: Iterable[float]) -> None:
    """None of these due times has ever had a run."""
    made = creates(history)
    names = {run_name(deployment, due) for deployment in deployments for due in dues}
    assert not names & made.keys(), sorted(names & made.keys())


async def events_about(rig: Rig, names: Iterable[str], reason: str, within: float) -> dict[str, list[Object]]:
    """Wait until there is an Event with this reason about each of these schedules; they, by name."""
    wanted = set(names)
    seen: defaultdict[str, list[Object]] = defaultdict(list)

    async def there() -> bool:
        seen.clear()
        for event in await rig.events():
            if (event["regarding"]["kind"], event["reason"]) == (labels.SCHEDULE_KIND, reason):
                seen[event["regarding"]["name"]].append(event)
        return wanted <= seen.keys()

    await rig.until(there, within, f"Events {reason} about {len(wanted)} objects")
    return {name: seen[name] for name in wanted}
