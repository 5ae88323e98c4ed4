"""G1: every due time fires that some host was there for, in time, and no other does."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from tests.faults.history.due import due_times, text
from tests.faults.history.facts import Command, Violation, Write
from tests.faults.history.rules import Rule, Version
from tests.faults.history.runs import Run
from tests.faults.history.spans import clip, covers, meets, quantile
from tests.faults.history.view import View, of_run


@dataclass(frozen=True, slots=True)
class Due:
    """One due time and what can be said of it for sure."""

    deployment: str
    at: float
    in_force: bool
    """A rule with this due time was surely in force at it."""
    attended: bool
    """A host was surely there."""
    latest: float | None
    """By when some operator must have fired it; None: none was able to for long enough."""
    overdue: float | None
    """From when on a run comes too late whatever had hindered operators; None: there was no such calm."""
    run: Run | None

    @property
    def certain(self) -> bool:
        """Whether it had to become a run."""
        return self.in_force and self.attended and self.latest is not None


def due_times_of(view: View) -> list[Due]:
    """Every due time of every rule that AstraBox asked for and that may have been in force."""
    runs = {
        (run.deployment, run.due): run
        for run in view.runs.values()
        if run.trigger == "schedule" and run.exists
    }
    found: list[Due] = []
    for deployment in view.asked.deployments:
        times: set[float] = set()
        for version in view.asked.versions(deployment):
            if version.rule is not None and version.rule.enabled:
                times.update(_times(view, version, version.rule))
        found += [_judged(view, deployment, due, runs.get((deployment, due))) for due in sorted(times)]
    return found


def lost_or_late(view: View, dues: list[Due]) -> Iterator[Violation]:
    """A due time that had to become a run and did not, or did so late for no reason."""
    for due in dues:
        created = due.run.created if due.run is not None else None
        if due.certain and due.run is None:
            assert due.latest is not None
            yield Violation(
                "G1",
                f"the due time {text(due.at)} was lost: no run by {view.when(due.latest)}, though its rule "
                "was in force, a host was there and an operator able",
                deployment_id=due.deployment,
            )
        elif due.run is not None and created is not None:
            lateness = created.received - due.at
            limit = view.slack.late + view.slack.load
            came = f"the run of {text(due.at)} came {lateness:.1f} s late"
            if lateness > limit and _was_easy(view, due):
                yield of_run("G1", f"{came} for no reason, not {limit:g} s", due.run)
            elif due.overdue is not None and created.received > due.overdue:
                what = f"{came}, and an operator was able to fire it by {view.when(due.overdue)}"
                yield of_run("G1", what, due.run)


def late_as_a_rule(view: View, dues: list[Due]) -> Iterator[Violation]:
    """Each may be late once in a while; half of those for which nothing stood in the way may not.

    A due time of very many schedules is left out: their runs are created one after the other.
    """
    crowds = Counter(due.at for due in dues)
    late = sorted(
        due.run.created.received - due.at
        for due in dues
        if due.run is not None
        and due.run.created is not None
        and crowds[due.at] <= view.slack.crowd
        and _was_easy(view, due)
    )
    usual = quantile(late, 0.5)
    if len(late) >= view.slack.few and usual > view.slack.late:
        what = f"half of {len(late)} runs that nothing stood in the way of came {usual:.1f} s late or later"
        yield Violation("G1", what)


def groundless(view: View) -> Iterator[Violation]:
    """Scheduled runs that there should not be, or that should not have been started."""
    for run in view.runs.values():
        created = run.created
        if run.trigger != "schedule" or not run.exists or _by_hand(view, created):
            continue
        if run.due is None:
            yield of_run("G1", "a scheduled run has no due time", run)
            continue
        if created is not None:
            yield from _untimely(view, run, run.due, created)
        yield from _without_rule(view, run, run.due)
        yield from _without_host(view, run, run.due)
        yield from _cancelled(view, run, run.due)


def _times(view: View, version: Version, rule: Rule) -> tuple[float, ...]:
    begin, end = version.possible
    history = view.history
    return due_times(rule.cron, rule.zone, max(begin, history.begun) - 1, min(end, history.ended))


def _judged(view: View, deployment: str, due: float, run: Run | None) -> Due:
    clock = view.slack.clock

    def in_force(rule: Rule) -> bool:
        return rule.due_at(due)

    held = (
        view.asked.certainly(deployment, in_force, due - clock, due + clock)
        and _was_seen(view, deployment, due)
        and not _may_be_undone(view, deployment, due)
    )
    shown = view.there.shown(due) if held else None
    needed = max(view.bounds.lease_duration + 10, view.slack.late + view.slack.load)
    latest = overdue = None
    if shown is not None:
        since = max(due, shown if _all_cut_off(view, due) else due)
        latest = _latest(view, deployment, due, since, needed)
        overdue = _latest(view, deployment, due, since, needed + view.slack.load)
    return Due(deployment, due, held, shown is not None, latest, overdue, run)


def _all_cut_off(view: View, due: float) -> bool:
    """Whether no host was surely able to show at once that it was there."""
    proof = view.bounds.renew_period + view.slack.proof
    return not view.there.visible_host(due - proof, due + proof)


def _was_seen(view: View, deployment: str, due: float) -> bool:
    """Whether a rule that a hand wrote had been seen before the due time: it is active only from then on."""
    for version in view.asked.possible(deployment, due, due):
        by, since = version.origin
        if by in view.slack.foreign_writers:
            seen = clip(view.there.calm("operator"), since, due)
            if not any(end - begin >= view.slack.hand_edit for begin, end in seen):
                return False
    return True


def _latest(view: View, deployment: str, due: float, since: float, needed: float) -> float | None:
    """By when it had to be fired, by the first stretch of calm operators after `since` that is long enough.

    `needed`: so long that the Lease of one that died before can run out, and the next one gets to it. The
    schedule must stay enabled until then; an edit excuses nothing, a disable or delete does if AstraBox
    asked for it. A due time is beyond catching up a little before the window ends, since clocks differ.
    """
    over = min(due + view.bounds.catch_up_window - view.slack.clock, view.history.ended)
    enabled = view.asked.first_doubt(deployment, lambda rule: rule.enabled, due)
    for begin, end in clip(view.there.calm("operator"), since, min(over, enabled)):
        if end - begin >= needed:
            return begin + needed
    return None


def _was_easy(view: View, due: Due) -> bool:
    """Whether nothing at all stood in the way: rule, host and operators as they are from before to after."""
    before, after = view.bounds.lease_duration + 10, view.slack.late + view.slack.load
    return (
        due.in_force
        and view.there.visible_host(due.at - view.slack.settle, due.at + after)
        and not meets(view.there.outages, due.at - before, due.at + after)
        and view.asked.certainly(due.deployment, lambda rule: rule.enabled, due.at - 2, due.at + after)
        and covers(view.there.calm("operator"), due.at - before, due.at + after)
    )


def _by_hand(view: View, created: Write | None) -> bool:
    return created is not None and created.by in view.slack.foreign_writers


def _untimely(view: View, run: Run, due: float, created: Write) -> Iterator[Violation]:
    if created.received < due - view.slack.clock:
        yield of_run(
            "G1", f"it was created {due - created.received:.1f} s before its due time {text(due)}", run
        )
    window = view.bounds.catch_up_window
    # The guard stands just before the request: what was frozen or swallowed behind it arrives later.
    creator = view.there.life_at(created.by, created.received)
    excused = view.there.disturbed(creator, due, created.received)
    if created.received > due + window + view.slack.load and not excused:
        what = f"it was created {created.received - due:.1f} s after its due time, beyond the {window:g} s"
        yield of_run("G1", what, run)


def _without_rule(view: View, run: Run, due: float) -> Iterator[Violation]:
    """A rule's declared beginning is exact; who wrote it when is known to the clocks' resolution."""
    clock = view.slack.clock
    in_force = view.rules.possibly(run.deployment, lambda rule: rule.due_at(due), due - clock, due + clock)
    if not in_force and not _put_back(view, run, due):
        what = f"it runs for {text(due)}, at which no rule with that due time was in force"
        yield of_run("G1", what, run)


def _put_back(view: View, run: Run, due: float) -> bool:
    """Whether a change that failed was undone: then the rule from before it is held to have gone on.

    That is believed of a rule which was stored before, and of a change that AstraBox was told has failed.
    """
    commands = view.history.commands
    failed = any(_unsure(each, run.deployment) and each.sent <= due + view.slack.clock for each in commands)
    until = view.history.ended if run.created is None else run.created.completed or run.created.received
    told = (each.rule.owes(due) for each in view.rules.possible(run.deployment, due, until) if each.rule)
    known = {
        (version.rule.cron, version.rule.zone)
        for version in view.rules.possible(run.deployment, -inf, due)
        if version.rule is not None and version.rule.enabled
    }
    return failed and any((each.cron, each.zone) in known for each in told if each is not None)


def _unsure(command: Command, deployment: str) -> bool:
    """Whether this change was answered with a fault of the store: it may be stored, and undone later."""
    return command.unavailable and command.op in ("apply", "delete") and command.deployment_id == deployment


def _may_be_undone(view: View, deployment: str, due: float) -> bool:
    """Whether what was in force at the due time came from a change that failed: then it may be undone."""
    clock = view.slack.clock
    begun = [version.possible[0] for version in view.asked.possible(deployment, due - clock, due + clock)]
    return any(
        _unsure(each, deployment) and any(each.sent <= at <= (each.returned or inf) + clock for at in begun)
        for each in view.history.commands
    )


def _without_host(view: View, run: Run, due: float) -> Iterator[Violation]:
    """While a killed host's Lease runs out a run is made, since nobody knows; it must be cancelled."""
    if view.there.possible_host(due):
        return
    if run.calls:
        first = run.calls[0]
        what = f"no host was there at {text(due)}, and {first.host} called for it at {view.when(first.begun)}"
        yield of_run("G1", what, run)
    elif run.phase != "Cancelled" and not _may_wait(view, due):
        yield of_run(
            "G1", f"no host was there at {text(due)}, and the run is {run.phase}, not Cancelled", run
        )


def _may_wait(view: View, due: float) -> bool:
    """Whether no operator has had to cancel it: they do so after the window, once in half a minute."""
    needed = view.slack.doubt + view.slack.settle + view.bounds.lease_duration + 10 + view.slack.load
    calm = clip(view.there.calm("operator"), due + view.bounds.catch_up_window, view.history.ended)
    return not any(end - begin >= needed for begin, end in calm)


def _cancelled(view: View, run: Run, due: float) -> Iterator[Violation]:
    """A run is cancelled for a schedule that was disabled or gone, or for want of a host; never otherwise."""
    if run.phase != "Cancelled":
        return
    until = run.finished.ended if run.finished is not None else inf
    disabled = not view.rules.certainly(
        run.deployment, lambda rule: rule.enabled, due - view.slack.confirm, until
    )
    shown = view.there.shown(due)
    too_old = until > due + view.bounds.catch_up_window - view.slack.clock
    may_be_unknown = too_old and _all_cut_off(view, due) and (shown is None or shown > until)
    if shown is not None and not may_be_unknown and not disabled:
        yield of_run(
            "G1", f"the run of {text(due)} was cancelled, though a host was there and it stayed enabled", run
        )


def runs_by_due(view: View) -> dict[tuple[str, float], list[Run]]:
    """Scheduled runs by Deployment and due time."""
    found: defaultdict[tuple[str, float], list[Run]] = defaultdict(list)
    for run in view.runs.values():
        if run.trigger == "schedule" and run.due is not None:
            found[run.deployment, run.due].append(run)
    return dict(found)
