"""G1: what a schedule's status says of due times without a run is what became of them.

Judged by the objects at the end. How many were skipped is at least what had to be and at most what can
have been; of the latest the reason is one that fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

from tests.faults.history.due import due_times, text
from tests.faults.history.facts import Violation
from tests.faults.history.firing import Due
from tests.faults.history.objects import field, seconds
from tests.faults.history.rules import SCHEDULES, Version
from tests.faults.history.runs import Run
from tests.faults.history.spans import clip, meets
from tests.faults.history.view import View

_COUNTED = 1000
"""Of one gap no more are counted."""


def traced(view: View, dues: Sequence[Due]) -> Iterator[Violation]:
    """The status of every schedule of which all that was stored is known."""
    lost = {(each.deployment, each.at) for each in dues if each.certain and each.run is None}
    for name, stored in view.history.schedules.items():
        deployment = str(field(stored, "spec", "deploymentId"))
        versions = view.rules.versions(deployment)
        by_hand = any(each.by in view.slack.foreign_writers for each in versions)
        if not versions or by_hand or not all(each.known for each in versions):
            continue
        told: Mapping[str, Any] = field(stored, "status", "skipped") or {}
        may, count = _may_be_skipped(view, deployment), int(told.get("count", 0))
        if count > len(may):
            what = f"its status tells of {count} skipped due times, without a run are {len(may)} at most"
            yield Violation("G1", what, deployment_id=deployment)
        must = [
            due for due in may if (deployment, due) not in lost and _must_be_skipped(view, deployment, due)
        ]
        if count < min(len(must), _COUNTED):
            what = f"its status tells of {count} skipped due times, without a run are {len(must)} at least"
            yield Violation("G1", what, deployment_id=deployment)
        latest = seconds(told.get("lastDueTime"))
        if count and latest is not None:
            reason = str(told.get("reason"))
            objection = _objection(view, deployment, latest, reason, _told_at(view, name, latest))
            if latest not in may:
                objection = "it has a run, or never was due"
            if objection:
                what = f"its status says that {text(latest)} was skipped for {reason}: {objection}"
                yield Violation("G1", what, deployment_id=deployment)


def _may_be_skipped(view: View, deployment: str) -> list[float]:
    """Due times of all that was ever stored, without those that surely became runs, in order."""
    times: set[float] = set()
    for version in view.rules.versions(deployment):
        times.update(_times(view, version))
    runs = {
        run.due: run
        for run in view.runs.values()
        if run.deployment == deployment and run.trigger == "schedule" and run.exists
    }
    return sorted(due for due in times if due not in runs or _may_have_come_late(view, due, runs[due]))


def _times(view: View, version: Version) -> set[float]:
    """What is due by this version, and what it says is still owed."""
    rule, history, clock = version.rule, view.history, view.slack.clock
    if rule is None:
        return set()
    begin, end = version.possible
    spans = [(rule.cron, rule.zone, begin, end)] if rule.enabled else []
    spans += [(each.cron, each.zone, each.since, each.until) for each in rule.earlier]
    return {
        due
        for cron, zone, since, until in spans
        for due in due_times(cron, zone, max(since - clock, history.begun), min(until + clock, history.ended))
    }


def _may_have_come_late(view: View, due: float, run: Run) -> bool:
    """Whether somebody may have settled it as skipped before its run came all the same.

    One that nobody started; one whose create was held up, or came as the window ended; one whose hosts
    were all cut off at it.
    """
    created = run.created
    if created is None or run.phase == "Cancelled":
        return True
    held_up = view.there.disturbed(view.there.life_at(created.by, created.received), due, created.received)
    at_the_end = created.received > due + view.bounds.catch_up_window - 2 * view.slack.clock
    cut_off = not view.there.visible_host(due, due + view.slack.settle)
    return held_up or at_the_end or (cut_off and created.received > due + view.slack.settle)


def _must_be_skipped(view: View, deployment: str, due: float) -> bool:
    """Whether it has no run, was surely due, and an operator has surely settled it and said so."""
    clock = view.slack.clock
    runs = (run for run in view.runs.values() if run.deployment == deployment and run.due == due)
    if any(run.exists for run in runs) or not _only_done(view, deployment):
        return False
    versions = view.rules.versions(deployment)
    gone = min((each.possible[0] for each in versions[1:] if each.rule is None), default=inf)
    if not view.rules.certainly(deployment, lambda rule: rule.due_at(due), due - clock, due + clock):
        return False
    needed = view.slack.settle + view.bounds.lease_duration + 10 + view.slack.load
    for begin, end in clip(view.there.calm("operator"), due, min(gone, view.history.ended)):
        changes = (each.settled for each in versions if due - clock <= each.settled <= begin + needed)
        settled = max([begin, *changes]) + needed
        if settled <= end:
            return not _lost_operator(view, due, settled)
    return False


def _only_done(view: View, deployment: str) -> bool:
    """Whether every change was asked for and answered as done: nothing that was undone, or may be."""
    lists = (each for each in view.history.commands if each.op == "reconcile")
    own = (each for each in view.history.commands if each.deployment_id == deployment)
    changes = (each for each in own if each.op in ("apply", "delete"))
    unasked = any(each.deployment == deployment for each in view.unasked)
    return not unasked and all(each.done for each in (*lists, *changes))


def _lost_operator(view: View, begin: float, end: float) -> bool:
    """Whether one that was at work in this time was lost or disturbed in it: what it had counted is gone."""
    for life in view.there.lives("operator"):
        worked = meets(view.there.able(life), begin, end)
        ended = begin <= view.there.end(life) <= end and life.ended is not None
        asked = life.asked_to_end is not None and begin <= life.asked_to_end <= end
        if worked and (ended or asked or meets(view.there.disturbances(life), begin, end)):
            return True
    return False


def _told_at(view: View, name: str, latest: float) -> float:
    """When the status told of this due time as the latest skipped one for the first time."""
    told = (
        write.received
        for write in view.history.writes
        if (write.resource, write.name) == (SCHEDULES, name)
        and seconds(field(write.after, "status", "skipped", "lastDueTime")) == latest
    )
    return min(told, default=view.history.ended)


def _objection(view: View, deployment: str, due: float, reason: str, told_at: float) -> str | None:
    """Why the reason does not fit."""
    clock = view.slack.clock
    if reason == "NoAstraBoxProcess":
        shown = view.there.shown(due)
        if told_at < due + view.slack.settle - clock:
            return f"it was told at an age of {told_at - due:.0f} s, when nobody could know that"
        return "a host was there" if shown is not None and shown + view.slack.late <= told_at else None
    if reason == "OutsideCatchUpWindow":
        age = told_at - due
        too_early = age < view.bounds.catch_up_window - clock
        return f"it was told at an age of {age:.0f} s" if too_early else None
    if reason == "ScheduleDisabled":
        on = view.rules.certainly(deployment, lambda rule: rule.enabled, due - clock, told_at)
        return "it stayed enabled" if on else None
    if reason == "NameTaken":
        hands = view.slack.foreign_writers
        by_hand = any(run.created is not None and run.created.by in hands for run in view.runs.values())
        return None if by_hand else "nobody made a run by hand"
    return "there is no such reason"
