"""G6: run now and replay are saved before they are answered, once each, and change no time rule."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from tests.faults.history.facts import Call, Command, Violation
from tests.faults.history.objects import exact, exact_text
from tests.faults.history.runs import Run
from tests.faults.history.spans import clip, longest, union
from tests.faults.history.view import View, of_run


def requested(view: View) -> Iterator[Violation]:
    """All that is asked of enqueue."""
    answered: Counter[str] = Counter()
    for command in view.history.commands:
        if command.op == "enqueue" and command.done and command.run_id is not None:
            answered[command.run_id] += 1
            yield from _saved(view, command, command.run_id)
    for run_id, count in answered.items():
        if count > 1:
            yield Violation("G6", f"{count} requests were answered with one run", run_id=run_id)
    yield from _in_excess(view)
    yield from _not_withdrawn(view)


def _saved(view: View, command: Command, run_id: str) -> Iterator[Violation]:
    """The run is there, or was and is pruned; of its create the receipt is compared with the answer."""
    run = view.runs.get(run_id)
    if run is None or run.created is None:
        yield Violation(
            "G6", "it was answered as saved, and there is no such run", run_id, command.deployment_id
        )
        return
    if command.returned is not None and run.created.received > command.returned:
        late = run.created.received - command.returned
        yield of_run("G6", f"it was saved {late:.2f} s after it was answered", run)
    trigger = command.trigger or "manual"
    told = (run.deployment, run.trigger, run.spec.get("replayedFrom"))
    asked = (command.deployment_id, trigger, command.replayed_from)
    if told != asked:
        yield of_run("G6", f"asked for was {asked}, saved is {told}", run)
    wanted = exact(command.payload)
    if trigger == "replay":
        source = view.runs.get(command.replayed_from or "")
        wanted = (
            exact_text(source.spec.get("payload")) if source is not None and source.spec else None
        ) or ""
        if not wanted:
            return  # what it was is not told: its create is older than the history
    if exact_text(run.spec.get("payload")) != wanted:
        yield of_run(
            "G6", f"its payload is not that of the {'source' if trigger == 'replay' else 'request'}", run
        )


def _in_excess(view: View) -> Iterator[Violation]:
    """Runs beyond what was asked for. A request without a final answer may have been saved, once.

    Compared by what was asked for, so that a second run of one request shows beside another's.
    """
    asked: Counter[tuple[str, ...]] = Counter()
    for command in view.history.commands:
        if command.op == "enqueue" and not command.rejected:
            asked[_asked(command)] += 1
    saved: defaultdict[tuple[str, ...], list[Run]] = defaultdict(list)
    for run in view.runs.values():
        by_hand = run.created is not None and run.created.by in view.slack.foreign_writers
        if run.trigger in ("manual", "replay") and run.exists and not by_hand:
            saved[_key(run)].append(run)
    for key, runs in saved.items():
        if len(runs) > asked[key]:
            names = ", ".join(run.name for run in runs)
            what = f"{len(runs)} {key[1]} runs are there for {asked[key]} requests: {names}"
            yield of_run("G6", what, runs[-1])


def _not_withdrawn(view: View) -> Iterator[Violation]:
    """A run that AstraBox was told is not saved, and that began all the same.

    Its host knows and never begins it. Another one does if that host was lost, or was cut off for as long
    as its Lease may have run out, before it could cancel it.
    """
    for command in view.history.commands:
        if command.op != "enqueue" or not command.unavailable or command.returned is None:
            continue
        for run in _left_behind(view, command, command.returned):
            first = run.calls[0]
            late = first.begun > command.returned + view.slack.answer
            if late and not _could_not_withdraw(view, command, first):
                what = (
                    f"{first.step} began in {first.host} at {view.when(first.begun)}, "
                    f"{first.begun - command.returned:.1f} s after AstraBox was told that it is not saved"
                )
                yield of_run("G6", what, run)


def _left_behind(view: View, command: Command, returned: float) -> list[Run]:
    """Runs with calls that this command must have made: no other one asked its host for the like then."""
    until = returned + view.slack.straggle
    alike = [
        each
        for each in view.history.commands
        if each.op == "enqueue" and each.host == command.host and _asked(each) == _asked(command)
    ]
    if any(each is not command and each.sent <= until for each in alike):
        return []
    return [
        run
        for run in view.runs.values()
        if run.calls
        and _key(run) == _asked(command)
        and run.created is not None
        and run.created.by == command.host
        and command.sent <= run.created.received <= until
    ]


def _could_not_withdraw(view: View, command: Command, first: Call) -> bool:
    there, bounds = view.there, view.bounds
    life = there.life_at(command.host, command.sent)
    if life is None or there.life_of(first) is life:
        return life is None
    end = there.end(life) if life.asked_to_end is None else life.asked_to_end
    away = clip(union([*there.disturbances(life), *there.outages]), command.sent, first.begun)
    return end <= first.begun or longest(away) > bounds.lease_duration - bounds.renew_period


def _asked(command: Command) -> tuple[str, ...]:
    trigger = command.trigger or "manual"
    what = str(command.replayed_from) if trigger == "replay" else exact(command.payload)
    return str(command.deployment_id), trigger, what


def _key(run: Run) -> tuple[str, ...]:
    spec: Mapping[str, Any] = run.spec
    what = str(spec.get("replayedFrom")) if run.trigger == "replay" else str(exact_text(spec.get("payload")))
    return run.deployment, run.trigger, what
