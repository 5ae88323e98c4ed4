"""G4."""

from tests.faults.history.facts import Bounds, Outage
from tests.unit.history.story import A2, A, B, Story, a_good_day, by_name, expect, found, of, permitted, t

RUN = "every-240"
TAKEN = "every-300"


def anew(run: str = RUN, due: float = 240) -> Story:
    story = a_good_day()
    story.forget(run)
    story.create("every", due)
    return story


def hanging(host: tuple[str, int] = A, until: float = 290) -> Story:
    """start_session hangs in a; b calls meanwhile, at 262 s."""
    story = anew()
    story.claim(RUN, host[0], 240.3)
    story.call(RUN, host, "start_session", 240.4, until)
    story.dispatch(RUN, B, 262)
    return story


def test_a_run_that_never_ends() -> None:
    story = anew("every-840", 840)
    seen = found(story)
    assert {(each.guarantee, each.run_id) for each in seen} == {("G4", "every-840")}
    assert any("at the end" in each.what for each in seen)


def first_pause(story: Story, seconds: float) -> None:
    """Let the first pause be so long; the run that fails once in the good day does not fail."""
    story.bounds = Bounds(retry_first_delay=seconds)
    story.forget("every-180")
    story.dispatch(story.create("every", 180), B, 180.3)


def test_a_run_that_waits_for_its_next_attempt_at_the_end() -> None:
    story = anew("every-840", 840)
    story.claim("every-840", "b", 840.3)
    story.call("every-840", B, "start_session", 840.4, 840.5, error="StagedFailureError: fails")
    story.fail("every-840", "b", 840.6, 900)
    first_pause(story, 59.4)
    permitted(story)


def test_a_run_without_hosts_at_the_end() -> None:
    story = anew("every-840", 840)
    for pid in (102, 103):
        story.change_life(pid, ended=880, code=-9)
    permitted(story)


def test_a_run_that_is_left_lying() -> None:
    story = a_good_day()
    story.writes = [each for each in story.writes if each.name != TAKEN or each.received < t(305)]
    story.calls = [each for each in story.calls if each.run_id != TAKEN or each.begun < t(305)]
    story.change_life(103, begun=380, ready=384)
    story.forget("half-360")
    story.dispatch(story.create("half", 360, payload={"half": [1, 1.0, True]}), B, 361)
    story.dispatch(TAKEN, B, 345)
    expect(story, "G4", TAKEN, "nobody went on with it")


def test_a_run_that_lies_while_everything_is_away() -> None:
    story = anew(RUN, 240)
    story.outages = [Outage("etcd", t(241), t(285))]
    story.dispatch(RUN, B, 300)
    permitted(story)


def test_a_run_that_lies_in_its_pause() -> None:
    story = anew()
    story.claim(RUN, "b", 240.3)
    story.call(RUN, B, "start_session", 240.4, 240.5, error="StagedFailureError: fails")
    story.fail(RUN, "b", 240.6, 400)
    first_pause(story, 159.4)
    story.dispatch(RUN, B, 400.2)
    permitted(story)


def test_a_run_that_is_forgotten_after_its_pause() -> None:
    story = anew()
    story.claim(RUN, "b", 240.3)
    story.call(RUN, B, "start_session", 240.4, 240.5, error="StagedFailureError: fails")
    story.fail(RUN, "b", 240.6, 400)
    first_pause(story, 159.4)
    story.dispatch(RUN, B, 455)
    expect(story, "G4", RUN, "nobody went on with it")


def test_a_long_call_is_no_standing_still() -> None:
    story = anew()
    story.claim(RUN, "b", 240.3)
    story.call(RUN, B, "start_session", 240.4, 330)
    story.save(RUN, "b", 330.1, sessionId=f"sess-{RUN}")
    story.admit(RUN, B, 330.2)
    permitted(story)


def test_a_call_in_a_frozen_host_keeps_nobody() -> None:
    story = anew("every-360", 360)
    story.claim("every-360", "a", 360.3)
    story.call("every-360", A2, "start_session", 360.4, 600)
    story.change_life(103, frozen=[(361, 590)])
    story.forget("half-480")
    story.dispatch(story.create("half", 480), B, 481)
    story.dispatch("every-360", B, 450)
    expect(story, "G4", "every-360", "nobody went on with it")


def test_a_host_without_a_free_place_has_to_let_runs_wait() -> None:
    story = anew()
    for number in range(50):
        name = f"many-{number}"
        story.enqueue(235, B, "every", name)
        story.change("calls", of(name, "start_session"), ended=t(295))
        story.change("writes", by_name(name, sessionId=f"sess-{name}"), received=t(295.1), completed=t(295.2))
        story.change("calls", of(name, "admit_turn"), begun=t(295.3), ended=t(295.4))
        story.change("writes", by_name(name, phase="Succeeded"), received=t(295.5), completed=t(295.6))
    story.dispatch(RUN, B, 296)
    permitted(story)


def test_a_second_session() -> None:
    story = anew()
    story.claim(RUN, "b", 240.3)
    story.call(RUN, B, "start_session", 240.4, 240.5)
    story.save(RUN, "b", 240.6, sessionId=f"sess-{RUN}")
    story.call(RUN, B, "admit_turn", 240.7, 240.8, error="StagedFailureError: fails")
    story.fail(RUN, "b", 240.9, 242.9)
    story.claim(RUN, "b", 243)
    story.call(RUN, B, "start_session", 243.1, 243.2)
    story.admit(RUN, B, 243.4)
    expect(story, "G4", RUN, "start_session began")


def test_two_sessions_of_one_run() -> None:
    story = a_good_day()
    story.claim(RUN, "b", 240.35)
    story.call(RUN, B, "admit_turn", 240.65, 240.7, session_id="sess-2")
    assert any(each.guarantee == "G4" and "2 Sessions" in each.what for each in found(story))
    assert {each.run_id for each in found(story)} == {RUN}


def test_two_hosts_call_at_once() -> None:
    assert any("at the same time" in each.what for each in found(hanging()))
    assert {(each.guarantee, each.run_id) for each in found(hanging())} == {("G4", RUN)}


def test_a_frozen_host_may_still_be_in_its_call() -> None:
    story = hanging()
    story.change_life(101, frozen=[(241, 270)])
    permitted(story)


def test_a_hindered_host_may_have_lost_its_lease() -> None:
    story = hanging()
    story.change_life(101, hindered=[(230, 256)])
    permitted(story)


def test_a_host_that_was_killed_calls_no_more() -> None:
    story = hanging(until=400)
    story.change("calls", lambda call: call.run_id == RUN and call.host == "a", ended=None)
    story.change_life(101, ended=245, code=-9)
    story.forget(TAKEN)
    story.dispatch(story.create("every", 300), B, 300.4)
    permitted(story)


def test_a_run_that_a_hand_has_given_away() -> None:
    story = hanging()
    story.write(261, "admin", "patch", RUN)
    permitted(story)


def test_an_outage_may_cost_everybody_the_lease() -> None:
    story = hanging()
    story.outages = [Outage("apiserver", t(242), t(260))]
    permitted(story)


def stopped_in_call(releases: int) -> Story:
    story = anew("every-840", 840)
    run = "every-840"
    story.claim(run, "a", 840.3)
    story.call(run, A2, "start_session", 840.4, 866, error="CancelledError: ")
    story.save(run, "a", 866.1, releases=releases)
    story.change_life(103, asked_to_end=841, ended=867, code=0)
    story.dispatch(run, B, 867)
    return story


def test_an_orderly_stop_uses_up_no_attempt() -> None:
    permitted(stopped_in_call(1))


def test_an_orderly_stop_that_uses_up_an_attempt() -> None:
    expect(stopped_in_call(0), "G4", "every-840", "orderly stops use up none")


def test_a_kill_uses_up_an_attempt() -> None:
    story = a_good_day()
    assert story.history().runs[TAKEN]["status"]["attempts"] == 2
    permitted(story)


def test_a_call_that_ran_out_of_time_uses_up_an_attempt() -> None:
    story = anew()
    story.bounds = Bounds(handler_timeout=5)
    story.claim(RUN, "b", 240.3)
    story.call(RUN, B, "start_session", 240.4, 245.4, error="CancelledError: ")
    story.fail(RUN, "b", 245.5, 247.5)
    story.dispatch(RUN, B, 247.6)
    permitted(story)


def test_an_end_that_was_stored_though_it_was_answered_with_an_error() -> None:
    """etcd came back a moment too late for the answer: the run has ended, and nobody has to go on with it."""
    story = a_good_day()
    story.change("writes", by_name("every-240", phase="Succeeded"), code=504)
    permitted(story)
