"""G3."""

import pytest

from tests.faults.history.facts import Bounds, Outage
from tests.unit.history.store import iso
from tests.unit.history.story import A, B, Story, a_good_day, by_name, expect, found, of, permitted, t

RUN = "every-240"


def anew() -> Story:
    """The run of 240 s is created and nothing more."""
    story = a_good_day()
    story.forget(RUN)
    story.create("every", 240)
    return story


def test_admitted_before_the_session_was_saved() -> None:
    story = a_good_day()
    story.change("calls", of(RUN, "admit_turn"), begun=t(240.5))
    expect(story, "G3", RUN, "saved were")


def test_a_save_without_an_answer_counts() -> None:
    story = a_good_day()
    story.change("writes", by_name(RUN, sessionId=f"sess-{RUN}"), code=None, completed=None)
    permitted(story)


def test_a_refused_save_does_not_count() -> None:
    story = a_good_day()
    story.change("writes", by_name(RUN, sessionId=f"sess-{RUN}"), code=409, after=None)
    assert ("G3", RUN) in {(each.guarantee, each.run_id) for each in found(story)}


def test_admitted_to_another_session() -> None:
    story = a_good_day()
    story.change("calls", of(RUN, "admit_turn"), session_id="sess-other")
    expect(story, "G3", RUN, "sess-other")


@pytest.mark.parametrize("name", ["sessionId", "turnId"])
def test_ids_do_not_change(name: str) -> None:
    story = a_good_day()
    story.save(RUN, "b", 242, **{name: "another"})
    assert {(each.guarantee, each.run_id) for each in found(story)} == {("G3", RUN)}
    assert any(f"{name} was changed" in each.what for each in found(story))


def test_ids_are_not_taken_away() -> None:
    story = a_good_day()
    story.save(RUN, "b", 242, sessionId=None)
    expect(story, "G3", RUN, "was taken away")


def test_a_call_after_success() -> None:
    story = a_good_day()
    story.call(RUN, B, "admit_turn", 250, 251)
    seen = found(story)
    assert {(each.guarantee, each.run_id) for each in seen} == {("G3", RUN)}
    assert any("after it was Succeeded" in each.what for each in seen)


def test_a_call_that_was_frozen_behind_its_check() -> None:
    story = a_good_day()
    story.change_life(101, frozen=[(238, 250)])
    story.change("writes", by_name(RUN, attempts=1), after={"status": {"phase": "Running", "attempts": 2}})
    story.call(RUN, A, "admit_turn", 250.2, 251)
    permitted(story)


def test_a_call_without_a_claim() -> None:
    story = a_good_day()
    story.drop("writes", by_name(RUN, attempts=1))
    assert all("0 attempts saved" in each.what and each.run_id == RUN for each in found(story))
    assert found(story)


def test_success_without_that_turn() -> None:
    story = a_good_day()
    story.change("calls", of(RUN, "admit_turn"), result="turn-other")
    expect(story, "G3", RUN, "Succeeded with turn")


def test_success_without_any_turn() -> None:
    story = a_good_day()
    story.drop("calls", of(RUN, "admit_turn"))
    expect(story, "G3", RUN, "Succeeded with turn")


def permanent() -> Story:
    story = anew()
    story.claim(RUN, "b", 240.3)
    story.call(RUN, B, "start_session", 240.4, 240.5, error="RunPermanentError: it is gone")
    return story


def test_a_permanent_error_ends_it() -> None:
    story = permanent()
    story.save(RUN, "b", 240.6, phase="Failed", lastError="gone")
    permitted(story)


def test_a_call_after_a_permanent_error() -> None:
    story = permanent()
    story.dispatch(RUN, B, 243)
    seen = found(story)
    assert {(each.guarantee, each.run_id) for each in seen} == {("G3", RUN)}
    assert any("after a permanent error" in each.what for each in seen)


def test_a_permanent_error_that_was_lost_with_its_process() -> None:
    story = anew()
    story.claim(RUN, "a", 260.3)
    story.call(RUN, A, "start_session", 260.4, 299, error="RunPermanentError: it is gone")
    story.dispatch(RUN, B, 317)
    permitted(story)


def test_a_permanent_error_in_an_outage_may_not_be_saved() -> None:
    story = permanent()
    story.outages = [Outage("apiserver", t(240.45), t(262))]
    story.dispatch(RUN, B, 263)
    permitted(story)


def failing(story: Story, count: int, first: float = 240.3) -> None:
    """So many attempts, 3 s apart; each pause is as long as the longest."""
    story.bounds = Bounds(retry_max_delay=2.0)
    for number in range(count):
        begun = first + 3 * number
        story.claim(RUN, "b", begun)
        story.call(RUN, B, "start_session", begun + 0.1, begun + 0.2, error="StagedFailureError: fails")
        if number + 1 < count:
            story.fail(RUN, "b", begun + 0.3, begun + 2.3)


def test_exhausted_retries_end_it() -> None:
    story = anew()
    failing(story, 8)
    story.save(RUN, "b", 263, phase="Failed", lastError="fails")
    permitted(story)


def test_failed_too_early() -> None:
    story = anew()
    failing(story, 7)
    story.save(RUN, "b", 263, phase="Failed", lastError="fails")
    expect(story, "G3", RUN, "7 attempts used")


def test_too_many_attempts() -> None:
    story = anew()
    failing(story, 9)
    story.save(RUN, "b", 266, phase="Failed", lastError="fails")
    expect(story, "G3", RUN, "9 attempts were used")


def test_a_retry_that_comes_too_soon() -> None:
    story = anew()
    failing(story, 1)
    story.fail(RUN, "b", 240.6, 242.6)
    story.dispatch(RUN, B, 240.8)
    expect(story, "G3", RUN, "after a failure")


def test_clocks_may_differ_about_a_pause() -> None:
    story = anew()
    failing(story, 1)
    story.fail(RUN, "b", 240.6, 242.6)
    story.dispatch(RUN, B, 241.8)
    permitted(story)


def test_another_process_need_not_know_of_the_failure() -> None:
    story = anew()
    failing(story, 1)
    story.dispatch(RUN, A, 241)
    permitted(story)


def pausing(*pauses: float) -> Story:
    """Attempts that fail, each followed by one of these pauses; the last one succeeds."""
    story, at = anew(), 240.3
    story.bounds = Bounds(retry_max_delay=40.0)
    for pause in pauses:
        story.claim(RUN, "b", at)
        story.call(RUN, B, "start_session", at + 0.1, at + 0.2, error="StagedFailureError: fails")
        story.fail(RUN, "b", at + 0.3, at + 0.3 + pause)
        at += 0.4 + pause
    story.dispatch(RUN, B, at)
    return story


@pytest.mark.parametrize("pauses", [(2, 6, 18, 40, 40), (2.9, 5.2, 18.9), (2, 6, 17.2)])
def test_pauses_that_grow_up_to_the_longest(pauses: tuple[float, ...]) -> None:
    permitted(pausing(*pauses))


@pytest.mark.parametrize("pauses", [(2, 2, 2, 2), (2, 4, 8), (2, 6, 18, 36), (40, 40, 40), (2, 6, 20)])
def test_pauses_that_do_not_grow_as_they_should(pauses: tuple[float, ...]) -> None:
    seen = found(pausing(*pauses))
    assert {(each.guarantee, each.run_id) for each in seen} == {("G3", RUN)}
    assert any("it was to wait" in each.what for each in seen)


def test_a_retry_that_comes_before_its_time() -> None:
    story = pausing(2, 6, 18)
    last = max(call.begun for call in story.calls if call.run_id == RUN and call.step == "start_session")
    story.change("calls", lambda call: call.run_id == RUN and call.begun == last, begun=last - 6, ended=last)
    assert any("start_session came" in each.what and "less than 18 s" in each.what for each in found(story))


def test_a_pause_counts_from_the_failure_and_not_from_when_that_was_saved() -> None:
    story = anew()
    story.claim(RUN, "b", 240.3)
    story.call(RUN, B, "start_session", 240.4, 240.5, error="StagedFailureError: fails")
    story.fail(RUN, "b", 242.1, 242.6)
    story.dispatch(RUN, B, 242.7)
    permitted(story)


def test_a_pause_that_is_too_long() -> None:
    story = anew()
    failing(story, 1)
    story.save(RUN, "b", 240.6, phase="Retrying", nextAttemptTime=iso(t(560)))
    story.dispatch(RUN, B, 560.3)
    expect(story, "G3", RUN, "it was to wait")


@pytest.mark.parametrize(("at", "phase"), [(250, "Running"), (250, "Failed"), (240.5, "Queued")])
def test_phases_go_forward(at: float, phase: str) -> None:
    story = a_good_day()
    story.save(RUN, "b", at, phase=phase)
    assert any(each.guarantee == "G3" and "it went from" in each.what for each in found(story))
    assert {each.run_id for each in found(story)} == {RUN}


def test_cancelled_after_a_call() -> None:
    story = anew()
    story.claim(RUN, "b", 240.3)
    story.call(RUN, B, "start_session", 240.4, 240.5)
    story.save(RUN, "b", 240.6, phase="Cancelled")
    assert any(each.guarantee == "G3" and "Cancelled after 1 calls" in each.what for each in found(story))
