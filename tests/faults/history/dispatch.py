"""G3: start_session, save, admit_turn, save; bounded retries with pauses; a permanent error ends it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.faults.history.facts import Call, Violation
from tests.faults.history.objects import FINISHED, seconds
from tests.faults.history.runs import Run, Said
from tests.faults.history.view import View, of_run

PERMANENT = "RunPermanentError"
CANCELLED = "CancelledError"


def dispatched(view: View) -> Iterator[Violation]:
    """All that is asked of the calls and writes of one run."""
    for run in view.runs.values():
        for rule in (
            _unsaved_sessions,
            _changed_ids,
            _calls_after_the_end,
            _unclaimed_calls,
            _groundless_ends,
            _permanent_errors,
            _too_many_attempts,
            _short_waits,
            _saved_pauses,
            _backwards,
        ):
            yield from rule(view, run)


def failed(call: Call) -> bool:
    """Whether AstraBox refused; one that was cancelled may have run out of time, which is not told."""
    return call.error is not None and not call.error.startswith(CANCELLED)


def _unsaved_sessions(view: View, run: Run) -> Iterator[Violation]:
    """The write must have been received before the call, and be over by then but for the audit log's delay.

    A write of unknown outcome counts: without an answer the product reads the run until it knows.
    """
    for call in run.calls:
        if call.step != "admit_turn":
            continue
        saved = [said for said in run.said if said.status.get("sessionId") == call.session_id]
        latest = call.begun + view.slack.answer
        if not any(said.write.received <= call.begun and said.ended <= latest for said in saved):
            kept = sorted(
                {str(said.status["sessionId"]) for said in run.said if said.status.get("sessionId")}
            )
            what = f"admit_turn began at {view.when(call.begun)} with {call.session_id}, saved were: {kept}"
            yield of_run("G3", what, run)


def _changed_ids(view: View, run: Run) -> Iterator[Violation]:
    for name in ("sessionId", "turnId"):
        told = [said.status.get(name) for said in run.said if said.sure]
        told += [run.status.get(name)] if run.final is not None else []
        values = [value for value in told if value is not None]
        if len(set(values)) > 1:
            yield of_run("G3", f"its {name} was changed: {' -> '.join(dict.fromkeys(map(str, values)))}", run)
        if values and any(value is None for value in told[told.index(values[0]) :]):
            yield of_run("G3", f"its {name} {values[0]} was taken away", run)


def _calls_after_the_end(view: View, run: Run) -> Iterator[Violation]:
    """A process that was stopped between its last check and the call cannot know: see `Slack.thaw`."""
    if run.finished is None:
        return
    for call in run.calls:
        late = call.begun > run.finished.ended + view.slack.answer
        if late and not view.there.thawed(view.there.life_of(call), call.begun):
            phase = run.finished.status.get("phase")
            what = f"{call.step} began in {call.host} at {view.when(call.begun)}, after it was {phase}"
            yield of_run("G3", what, run)


def _unclaimed_calls(view: View, run: Run) -> Iterator[Violation]:
    """Each attempt is saved before its calls: of a step no more begin than attempts are saved."""
    for step in ("start_session", "admit_turn"):
        for count, call in enumerate((call for call in run.calls if call.step == step), 1):
            told = (said.status.get("attempts") for said in run.said if said.write.received <= call.begun)
            attempts = max((each for each in told if isinstance(each, int)), default=0)
            if count > attempts:
                what = (
                    f"{step} number {count} began at {view.when(call.begun)} with {attempts} attempts saved"
                )
                yield of_run("G3", what, run)


def _groundless_ends(view: View, run: Run) -> Iterator[Violation]:
    used = run.number("attempts") - run.number("releases")
    if run.phase == "Succeeded":
        turn = run.status.get("turnId")
        admitted = [call.result for call in run.calls if call.step == "admit_turn" and call.error is None]
        if turn is None or turn not in admitted:
            yield of_run("G3", f"it Succeeded with turn {turn}, admitted were: {admitted}", run)
    elif run.phase == "Failed":
        permanent = any((call.error or "").startswith(PERMANENT) for call in run.calls)
        if not permanent and used < view.bounds.max_attempts:
            yield of_run("G3", f"it Failed without a permanent error, {used} attempts used", run)
    elif run.phase == "Cancelled" and run.calls:
        yield of_run("G3", f"it was Cancelled after {len(run.calls)} calls of AstraBox", run)


def _permanent_errors(view: View, run: Run) -> Iterator[Violation]:
    """What AstraBox answered is lost with the process, or with its Lease; then another asks again."""
    for number, call in enumerate(run.calls):
        if call.ended is None or not (call.error or "").startswith(PERMANENT) or not _could_save(view, call):
            continue
        later = [each for each in run.calls[number + 1 :] if each.begun > call.ended]
        if later:
            what = f"{later[0].step} began at {view.when(later[0].begun)} after a permanent error"
            yield of_run("G3", what, run)
        if run.phase in FINISHED - {"Failed"}:
            yield of_run("G3", f"a permanent error, and it is {run.phase}", run)


def _could_save(view: View, call: Call) -> bool:
    """Whether the process of this call held the run throughout, and was free to save its outcome."""
    life = view.there.life_of(call)
    if life is None or call.ended is None:
        return False
    before, after = call.begun - view.bounds.lease_duration, call.ended + view.slack.late
    ended = life.asked_to_end if life.asked_to_end is not None else life.ended
    gone = ended is not None and ended <= after
    return not gone and not view.there.disturbed(life, before, after)


def _too_many_attempts(view: View, run: Run) -> Iterator[Violation]:
    used = run.number("attempts") - run.number("releases")
    if used > view.bounds.max_attempts:
        yield of_run("G3", f"{used} attempts were used, allowed are {view.bounds.max_attempts}", run)


def _short_waits(view: View, run: Run) -> Iterator[Violation]:
    """Between a failure and the next call of the same process that was free to save it.

    Another process repeats at once what was not saved.
    """
    for one, other in pairwise(run.calls):
        same = (one.host, one.pid) == (other.host, other.pid)
        if one.ended is None or not failed(one) or not same or not _could_save(view, one):
            continue
        by_hand = any(
            write.by in view.slack.foreign_writers and write.received <= other.begun for write in run.writes
        )
        wait, wanted = other.begun - one.ended, _pause(view, _used(run, one.begun))
        disturbed = view.there.disturbed(view.there.life_of(one), one.ended, other.begun)
        if wait < wanted - view.slack.retry and not disturbed and not by_hand:
            what = f"{other.step} came {wait:.2f} s after a failure, less than {wanted:g} s"
            yield of_run("G3", what, run)


def _saved_pauses(view: View, run: Run) -> Iterator[Violation]:
    """Each wait that was written is the one of the policy, after so many attempts."""
    slack, seen = view.slack, set[float]()
    for said in run.said:
        later = seconds(said.status.get("nextAttemptTime"))
        if later is None or later in seen or said.write.by in slack.foreign_writers:
            continue
        seen.add(later)
        wanted = _pause(view, _number(said, "attempts") - _number(said, "releases"))
        wait = later - said.write.received
        if wait > wanted + slack.clock:
            yield of_run("G3", f"it was to wait {wait:.1f} s, more than {wanted:g} s", run)
        ends = [
            call.ended
            for call in run.calls
            if call.host == said.write.by and call.ended is not None and call.ended <= said.write.received
        ]
        since_failure = later - max(ends, default=0.0)
        if since_failure < wanted - slack.retry - slack.clock:
            what = f"it was to wait {since_failure:.1f} s from its failure on, less than {wanted:g} s"
            yield of_run("G3", what, run)


def _pause(view: View, attempts: int) -> float:
    """Bounded exponential: what the policy demands after so many attempts."""
    bounds = view.bounds
    return min(bounds.retry_max_delay, bounds.retry_first_delay * bounds.retry_factor ** max(attempts - 1, 0))


def _used(run: Run, moment: float) -> int:
    """Attempts that were saved by then, without those that were handed over."""
    told = [said for said in run.said if said.write.received <= moment]
    return _number(told[-1], "attempts") - _number(told[-1], "releases") if told else 1


def _number(said: Said, name: str) -> int:
    value = said.status.get(name, 0)
    return value if isinstance(value, int) else 0


def _backwards(view: View, run: Run) -> Iterator[Violation]:
    """Forward only: nothing follows an end, and nothing that has begun is queued again."""
    sure = [said for said in run.said if said.sure]
    for one, other in pairwise(sure):
        before, after = _phase(one), _phase(other)
        if (before in FINISHED and after != before) or (before != "Queued" and after == "Queued"):
            yield of_run("G3", f"it went from {before} to {after} at {view.when(other.write.received)}", run)


def _phase(said: Said) -> str:
    return str(said.status.get("phase") or "Queued")
