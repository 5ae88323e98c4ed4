"""Makes a History of what a rig has seen."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from astrabox.host_wire import run_to_wire
from astrabox.seams.scheduler import SchedulerError
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.run import FINISHED
from tests.faults.history.facts import Bounds, History, Life
from tests.faults.stage.actors import PREFIXES
from tests.faults.stage.admin import Admin
from tests.faults.stage.audit import read_writes
from tests.faults.stage.records import own_reconciles
from tests.faults.stage.revisions import Version, read_versions

if TYPE_CHECKING:
    from tests.faults.stage.rig import Rig

_ROWS = 100_000
_LEDGER_SECONDS = 60.0
_OF_HOSTS = {
    "max_attempts": "MAX_ATTEMPTS",
    "retry_first_delay": "RETRY_FIRST_DELAY_SECONDS",
    "retry_max_delay": "RETRY_MAX_DELAY_SECONDS",
    "handler_timeout": "HANDLER_TIMEOUT_SECONDS",
}
_OF_OPERATORS = {"catch_up_window": "CATCH_UP_WINDOW_SECONDS", "history_limit": "HISTORY_LIMIT"}


@dataclass(frozen=True, slots=True)
class Beginning:
    """Where the facts of a rig begin: in time, in the audit log, in etcd."""

    at: float
    audit: int
    revision: int


async def unfinished(admin: Admin, namespace: str) -> list[str]:
    """Names of the runs that may still change."""
    runs = await admin.items(namespace, labels.RUN_PLURAL)
    return [
        run["metadata"]["name"]
        for run in runs
        if run.get("status", {}).get("phase", "Queued") not in FINISHED
    ]


async def collect(rig: Rig, admin: Admin, beginning: Beginning) -> History:
    """Read everything as it is now."""
    rig.actors.look()
    plane, namespace = rig.plane, rig.namespace
    runs = await admin.items(namespace, labels.RUN_PLURAL)
    schedules = await admin.items(namespace, labels.SCHEDULE_PLURAL)
    ended = time.time()
    versions: dict[tuple[str, int], Version] = {}
    for plural in (labels.RUN_PLURAL, labels.SCHEDULE_PLURAL):
        versions |= await read_versions(plane.etcd_url, namespace, plural, beginning.revision)
    journal, calls = rig.journal, rig.calls()
    hosts = [life for life in journal.lives if life.role == "host"]
    commands = [*journal.commands, *own_reconciles(hosts, rig.actors.folder / "points")]
    ids = {call.deployment_id for call in calls} | {run["spec"]["deploymentId"] for run in runs}
    # The writes are read after the ledgers, so that they tell what retention has deleted meanwhile.
    ledgers = await _ledgers(rig, journal.facts(ended), sorted(ids))
    return History(
        begun=beginning.at,
        ended=ended,
        lives=journal.facts(ended),
        commands=sorted(commands, key=lambda command: command.sent),
        calls=calls,
        writes=read_writes(plane.audit_folder, beginning.audit, namespace, versions),
        runs={run["metadata"]["name"]: run for run in runs},
        schedules={each["metadata"]["name"]: each for each in schedules},
        outages=journal.outages(ended),
        ledgers=ledgers,
        notes=sorted(journal.notes),
        bounds=bounds_of(rig.settings),
    )


def bounds_of(settings: Mapping[str, str]) -> Bounds:
    """The bounds that these settings make."""
    changed: dict[str, Any] = {}
    for prefix, names in ((PREFIXES["host"], _OF_HOSTS), (PREFIXES["operator"], _OF_OPERATORS)):
        for field, variable in names.items():
            if text := settings.get(prefix + variable):
                kind = int if field in ("max_attempts", "history_limit") else float
                changed[field] = kind(text)
    if text := settings.get(f"{PREFIXES['host']}STOP_TIMEOUT_SECONDS"):
        changed["stop_within"] = float(text) + 7.0
    return Bounds(**changed)


async def _ledgers(
    rig: Rig, lives: list[Life], ids: list[str]
) -> Mapping[str, Mapping[str, list[dict[str, Any]]]]:
    """What each host that is there answers; one that does not answer is left out."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for life in lives:
        if life.role != "host" or life.ended is not None or life.ready is None:
            continue
        if rig.actors.stopped(life.name):
            continue
        with suppress(OSError, TimeoutError, SchedulerError):
            async with asyncio.timeout(_LEDGER_SECONDS):
                door = rig.host(life.name)
                rows = {each: await door.list_runs(each, limit=_ROWS) for each in ids}
            found[life.name] = {each: [run_to_wire(run) for run in runs] for each, runs in rows.items()}
    return found
