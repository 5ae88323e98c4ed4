"""G4: a run that was cut off goes on, under its id and its saved Session, until it has ended."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from math import inf

from tests.faults.history.dispatch import CANCELLED, failed
from tests.faults.history.facts import Call, Life, Span, Violation
from tests.faults.history.objects import FINISHED, seconds
from tests.faults.history.runs import Run
from tests.faults.history.spans import clip, covers, longest, meets, subtract
from tests.faults.history.view import View, of_run


def recovered(view: View) -> Iterator[Violation]:
    """All that is asked of runs whose processes come and go."""
    for run in view.runs.values():
        if not run.exists:
            continue  # nobody knows what became of its create, and nobody has seen it
        yield from _unfinished(view, run)
        yield from _standing_still(view, run)
        yield from _second_sessions(view, run)
        yield from _at_once(view, run)
        yield from _spent_attempts(view, run)


def patience(view: View) -> float:
    """How long a run may lie with nobody at it: a Lease runs out, a sweep finds it, on a loaded machine."""
    return view.bounds.lease_duration + 5 + view.slack.load


def _unfinished(view: View, run: Run) -> Iterator[Violation]:
    """Unless no host was there at the end for long enough, or its next attempt is still to come."""
    end = view.history.ended
    if run.final is None or run.phase in FINISHED or _in_doubt_until(view, run) >= end:
        return
    later = seconds(run.status.get("nextAttemptTime"))
    hosts = (view.there.able(life) for life in view.there.lives("host"))
    there = any(covers(spans, end - patience(view), end) for spans in hosts)
    if there and (later is None or later <= end):
        yield of_run("G4", f"it is {run.phase} at the end and goes on no more", run)


def _in_doubt_until(view: View, run: Run) -> float:
    """Until when nobody starts a run of which no host has shown that it was there at its due time.

    Then operators cancel it: it is too old to fire. They look every half a minute, and after an outage only
    once Leases have been seen for a while.
    """
    if run.trigger != "schedule" or run.due is None or run.calls or view.there.certain_host(run.due):
        return -inf
    over = run.due + view.bounds.catch_up_window
    looked = clip(view.there.calm("operator"), over, inf)
    needed = view.slack.doubt + view.slack.settle + patience(view)
    return next((begin + needed for begin, end in looked if end - begin >= needed), inf)


def _standing_still(view: View, run: Run) -> Iterator[Violation]:
    """A stretch in which nothing happened to it though hosts were calm, with no call and no pause."""
    ends = [said.write.received for said in run.said if said.status.get("phase") in FINISHED]
    ends += [write.received for write in run.deletes] if run.final is None else []
    end = min(ends, default=view.history.ended)  # by a write of unknown outcome, too: it may have ended then
    moments = [write.received for write in run.writes] + [write.completed or 0.0 for write in run.writes]
    moments += [call.begun for call in run.calls] + [view.there.call_end(call) for call in run.calls]
    known = sorted({moment for moment in moments if 0 < moment < end} | {end})
    doubt = _in_doubt_until(view, run)
    calling = [span for call in run.calls for span in _calling(view, call)]
    for begin, until in pairwise(known):
        idle = subtract([(max(begin, _paused_until(run, begin), doubt), until)], calling)
        still = longest(part for span in idle for part in clip(view.there.calm("host"), *span))
        if still > patience(view):
            what = (
                f"nobody went on with it for {still:.1f} s after {view.when(begin)}, and hosts were able to"
            )
            yield of_run("G4", what, run)
            return


def _calling(view: View, call: Call) -> list[Span]:
    """The time in which a call keeps a run: not that in which its process is frozen or cut off."""
    life = view.there.life_of(call)
    span = (call.begun, view.there.call_end(call))
    return [span] if life is None else subtract([span], [*life.frozen, *life.hindered])


def _paused_until(run: Run, moment: float) -> float:
    told = [said for said in run.said if said.write.received <= moment]
    if not told:
        return moment
    last = told[-1].status
    return seconds(last.get("nextAttemptTime")) or moment if last.get("phase") == "Retrying" else moment


def _second_sessions(view: View, run: Run) -> Iterator[Violation]:
    saved = [said for said in run.said if said.sure and said.status.get("sessionId") is not None]
    if saved:
        first = min(said.ended for said in saved)
        for call in run.calls:
            late = call.step == "start_session" and call.begun > first + view.slack.answer
            if late and not view.there.thawed(view.there.life_of(call), call.begun):
                what = f"start_session began in {call.host} at {view.when(call.begun)} with a Session saved"
                yield of_run("G4", what, run)
    sessions = {call.session_id for call in run.calls if call.step == "admit_turn"}
    if len(sessions) > 1:
        yield of_run("G4", f"it was admitted to {len(sessions)} Sessions: {sorted(map(str, sessions))}", run)


def _at_once(view: View, run: Run) -> Iterator[Violation]:
    """Two processes call for one run at the same time only if the first had lost it or seemed to be gone."""
    for number, second in enumerate(run.calls):
        for first in run.calls[:number]:
            one, other = view.there.life_of(first), view.there.life_of(second)
            if one is other or one is None or second.begun >= view.there.call_end(first):
                continue
            if not _let_go(view, one, first, second.begun) and not _given_away(view, run, second.begun):
                what = (
                    f"{first.step} in {first.host} (from {view.when(first.begun)}) and {second.step} in "
                    f"{second.host} (from {view.when(second.begun)}) were made at the same time"
                )
                yield of_run("G4", what, run)


def _let_go(view: View, life: Life, call: Call, when: float) -> bool:
    """Whether this process was killed, kept from renewing, or told to hand its runs over, before `when`."""
    since = call.begun - view.bounds.lease_duration
    asked = life.asked_to_end is not None and life.asked_to_end <= when
    gone = life.ended is not None and life.ended <= when
    return asked or gone or view.there.disturbed(life, since, when) or meets(view.there.outages, since, when)


def _given_away(view: View, run: Run, when: float) -> bool:
    """Whether a hand has changed the run: whoever had it is told by its watch, a moment later."""
    return any(write.by in view.slack.foreign_writers and write.received <= when for write in run.writes)


def _spent_attempts(view: View, run: Run) -> Iterator[Violation]:
    """An orderly stop uses up no attempt. Judged where nothing but orderly stops and failures came between.

    A call that was cancelled in a process that was not asked to end had run out of time: a failure.
    """
    if not run.writes or run.finished is None or _given_away(view, run, run.finished.ended):
        return
    begin, end = run.writes[0].received - view.bounds.lease_duration, run.finished.ended
    for life in view.there.lives("host"):
        died = life.ended is not None and begin <= life.ended <= end and life.code != 0
        if died or view.there.disturbed(life, begin, end):
            return
    failures = sum(failed(call) or _timed_out(view, call) for call in run.calls)
    used = run.number("attempts") - run.number("releases")
    if used > failures + 1:
        what = f"{used} attempts were used with {failures} failures: orderly stops use up none"
        yield of_run("G4", what, run)


def _timed_out(view: View, call: Call) -> bool:
    life = view.there.life_of(call)
    return (call.error or "").startswith(CANCELLED) and (life is None or life.asked_to_end is None)
