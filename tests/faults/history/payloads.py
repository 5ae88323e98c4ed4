"""G8: AstraBox gets its payload back, value for value, on every call; an edit rewrites no run."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.history.facts import Violation
from tests.faults.history.objects import exact, exact_text, field, seconds
from tests.faults.history.runs import Run
from tests.faults.history.view import View, of_run


def kept(view: View) -> Iterator[Violation]:
    """Payloads of calls, of objects over time, and of scheduled runs against their schedules."""
    for run in view.runs.values():
        yield from _calls(run)
        yield from _rewritten(run)
        if run.trigger == "schedule" and run.spec:
            yield from _of_schedule(view, run)


def _calls(run: Run) -> Iterator[Violation]:
    wanted = exact_text(run.spec.get("payload")) if run.spec else None
    for call in run.calls:
        if wanted is not None and exact(call.payload) != wanted:
            yield of_run("G8", f"{call.step} in {call.host} got another payload than is stored", run)
            return
        if run.spec and (call.trigger, call.replayed_from) != (run.trigger, run.spec.get("replayedFrom")):
            yield of_run(
                "G8", f"{call.step} in {call.host} got another trigger or source than is stored", run
            )
            return
        if run.spec and seconds(call.scheduled_for) != seconds(run.spec.get("dueTime")):
            yield of_run("G8", f"{call.step} in {call.host} got another due time than is stored", run)
            return


def _rewritten(run: Run) -> Iterator[Violation]:
    told = [field(write.after, "spec", "payload") for write in run.writes if write.succeeded]
    told.append(field(run.final, "spec", "payload"))
    if len({each for each in told if each is not None}) > 1:
        yield of_run("G8", "its payload was rewritten", run)


def _of_schedule(view: View, run: Run) -> Iterator[Violation]:
    """One that its schedule may have had from the due time, or the read before the create, to the create."""
    created = run.created
    if created is None or run.due is None or created.by in view.slack.foreign_writers:
        return
    begin = min(run.due, created.received - view.slack.confirm) - view.slack.clock
    end = created.received if created.completed is None else created.completed
    versions = list(view.rules.possible(run.deployment, begin, end))
    allowed = {exact_text(version.rule.payload) for version in versions if version.rule is not None}
    unsure = any(not version.known for version in versions)
    if versions and not unsure and exact_text(run.spec.get("payload")) not in allowed:
        yield of_run(
            "G8", "its payload is none that its schedule had between the due time and the create", run
        )
