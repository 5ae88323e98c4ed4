"""G7: the history that AstraBox is shown is what is stored, newest first; and nothing leaves it too early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from math import inf
from typing import Any

from astrabox_scheduler_crds.labels import RUN_PLURAL
from tests.faults.history.facts import Object, Violation
from tests.faults.history.objects import FINISHED, exact, exact_text, field, seconds
from tests.faults.history.runs import Run
from tests.faults.history.view import View, of_run

_STATUS = {"Queued": "queued", "Succeeded": "completed", "Failed": "failed", "Cancelled": "cancelled"}
_SECOND = 1.0

Row = Mapping[str, Any]


def listed(view: View) -> Iterator[Violation]:
    """Every ledger that was read at the end, and every run that was deleted."""
    for host, by_deployment in (view.history.ledgers or {}).items():
        for deployment, rows in by_deployment.items():
            stored = {
                name: run
                for name, run in view.history.runs.items()
                if field(run, "spec", "deploymentId") == deployment
            }
            yield from _ledger(view, f"the ledger of {host}", deployment, (rows, stored))
    for run in view.runs.values():
        yield from _deleted(view, run)


def _ledger(
    view: View, whose: str, deployment: str, both: tuple[Sequence[Row], Mapping[str, Object]]
) -> Iterator[Violation]:
    rows, stored = both
    names = [str(row.get("run_id")) for row in rows]
    if len(set(names)) < len(names):
        yield Violation("G7", f"{whose} has a run twice", deployment_id=deployment)
    for extra in sorted(set(names) - stored.keys()):
        yield Violation("G7", f"{whose} has a run that is not stored", extra, deployment)
    for missing in sorted(_expected(view, stored) - set(names) - _gone_meanwhile(view)):
        yield Violation("G7", f"{whose} lacks this run", missing, deployment)
    if len(rows) > view.slack.ledger_limit:
        yield Violation("G7", f"{whose} has {len(rows)} rows", deployment_id=deployment)
    for one, other in pairwise(rows):
        before, after = seconds(one.get("created_at")), seconds(other.get("created_at"))
        if before is None or after is None or after > before:
            what = f"{whose} has {other.get('run_id')} after {one.get('run_id')}, which is older"
            yield Violation("G7", what, str(other.get("run_id")), deployment)
    for row in rows:
        found = stored.get(str(row.get("run_id")))
        if found is not None:
            wrong = _differing(row, found)
            if wrong:
                what = f"{whose} shows another {', '.join(wrong)} than is stored"
                yield Violation("G7", what, str(row.get("run_id")), deployment)


def _gone_meanwhile(view: View) -> set[str]:
    """Runs that were deleted between the read of all runs and that of the ledgers."""
    deletes = [each for each in view.history.writes if (each.verb, each.resource) == ("delete", RUN_PLURAL)]
    return {write.name for write in deletes if write.received >= view.history.ended}


def _expected(view: View, stored: Mapping[str, Object]) -> set[str]:
    """The newest of them, as many as were asked for; those of the last one's second may be left out."""
    created = {
        name: seconds(field(run, "metadata", "creationTimestamp")) or 0.0 for name, run in stored.items()
    }
    newest = sorted(created, key=lambda name: created[name], reverse=True)
    limit = view.slack.ledger_limit
    if len(newest) <= limit:
        return set(newest)
    return {name for name in newest if created[name] > created[newest[limit - 1]]}


def _differing(row: Row, run: Object) -> list[str]:
    spec, status = field(run, "spec") or {}, field(run, "status") or {}
    shown = _STATUS.get(status.get("phase", "Queued"), "running")
    created = seconds(field(run, "metadata", "creationTimestamp"))
    told = seconds(row.get("created_at"))
    same = {
        "deployment_id": row.get("deployment_id") == spec.get("deploymentId"),
        "trigger": row.get("trigger") == spec.get("trigger"),
        "status": row.get("status") == shown,
        "scheduled_for": seconds(row.get("scheduled_for")) == seconds(spec.get("dueTime")),
        "payload": exact(row.get("payload")) == exact_text(spec.get("payload")),
        "session_id": row.get("session_id") == status.get("sessionId"),
        "turn_id": row.get("turn_id") == status.get("turnId"),
        "error": row.get("error") == (None if shown in ("queued", "completed") else status.get("lastError")),
        "replayed_from_run_id": row.get("replayed_from_run_id") == spec.get("replayedFrom"),
        # The store keeps whole seconds, the creator's time is finer.
        "created_at": created is None or (told is not None and created <= told < created + _SECOND),
    }
    return [name for name, equal in same.items() if not equal]


def _deleted(view: View, run: Run) -> Iterator[Violation]:
    """Retention takes finished runs only, none younger than two catch-up windows, and keeps the newest."""
    for write in run.deletes:
        if not write.succeeded or write.by in view.slack.foreign_writers or run.final is not None:
            continue
        if not any(said.status.get("phase") in FINISHED for said in run.said):
            yield of_run("G7", f"it was deleted by {write.by} while it was {run.phase}", run)
        created = run.created
        floor = 2 * view.bounds.catch_up_window
        age = inf if created is None else write.received - created.received
        if age < floor - 2 * view.slack.clock:  # a creation time is cut to its second, and clocks differ
            yield of_run(
                "G7", f"it was deleted by {write.by} at an age of {age:.0f} s, less than {floor:g} s", run
            )
        newer, kept = _newer(view, run, write.received), view.bounds.history_limit
        if newer < kept:
            what = f"it was deleted by {write.by} with {newer} newer runs, of which {kept} are kept"
            yield of_run("G7", what, run)


def _newer(view: View, run: Run, until: float) -> int:
    """Runs of the same Deployment that may count as newer: those of its own second do."""
    since = inf if run.created is None else run.created.received - view.slack.clock
    return sum(
        each is not run and each.created is not None and since <= each.created.received <= until
        for each in view.runs.values()
        if each.deployment == run.deployment
    )
