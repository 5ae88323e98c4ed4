"""G1: lost, late and groundless runs; and what looks like them and is permitted."""

import pytest

from tests.faults.history.check import check
from tests.faults.history.facts import Bounds, Command, Outage
from tests.faults.history.slack import Slack
from tests.unit.history.store import iso
from tests.unit.history.story import A2, B, Story, a_good_day, expect, found, permitted, t, without


def test_a_lost_due_time() -> None:
    expect(without("every-240"), "G1", "every", "was lost")


def test_a_run_that_retention_took_is_not_lost() -> None:
    story = a_good_day()
    story.bounds = Bounds(catch_up_window=200.0, history_limit=5)
    story.write(700, "op-1", "delete", "every-240")
    permitted(story)


def test_a_create_of_which_nothing_came_is_a_lost_due_time() -> None:
    story = without("every-240")
    story.create("every", 240, code=500)
    expect(story, "G1", "every", "was lost")


def test_an_edit_after_the_due_time_excuses_nothing() -> None:
    story = without("every-840")
    story.apply(850, "a", "every", cron="7 3 * * *")
    expect(story, "G1", "every", "was lost")


def test_a_pause_soon_after_the_due_time_excuses() -> None:
    story = without("every-480")
    story.skip("every", 516, 480, "ScheduleDisabled")
    permitted(story)


def test_a_delete_soon_after_the_due_time_excuses() -> None:
    story = without("every-840")
    story.delete(850, "a", "every")
    permitted(story)


def test_no_operator_for_long_enough_excuses() -> None:
    story = without("every-840")
    story.change_life(201, ended=835, code=-9)
    story.change_life(202, ended=836, code=-9)
    permitted(story)


def test_operators_back_within_the_window_have_to_catch_up() -> None:
    story = without("every-780")
    story.change_life(201, ended=775, code=-9)
    story.change_life(202, ended=776, code=-9)
    story.life("op-1", "operator", 203, 810, 815)
    story.forget("every-840")
    story.dispatch(story.create("every", 840), B, 840.4)
    expect(story, "G1", "every", "was lost")


def test_operators_back_after_the_window_need_not() -> None:
    story = without("every-780")
    story.bounds = Bounds(catch_up_window=30.0)
    story.change_life(201, ended=775, code=-9)
    story.change_life(202, ended=776, code=-9)
    story.life("op-1", "operator", 203, 808, 812)
    story.skip("every", 812.5, 780, "OutsideCatchUpWindow")
    permitted(story)


def test_a_due_time_in_an_outage_is_caught_up() -> None:
    story = without("every-780")
    story.outages = [Outage("etcd", t(775), t(790))]
    expect(story, "G1", "every", "was lost")


def test_an_outage_until_the_end_excuses() -> None:
    story = without("every-840")
    story.outages = [Outage("etcd", t(830), t(880))]
    permitted(story)


def test_a_host_that_is_killed_at_the_due_time_proves_nothing() -> None:
    story = without("every-840")
    story.change_life(103, ended=830, code=-9)
    story.change_life(102, ended=843, code=-9)
    permitted(story)


def test_a_host_frozen_at_the_due_time_proves_nothing() -> None:
    story = without("every-840")
    for pid in (102, 103):
        story.change_life(pid, frozen=[(838, 845)])
    permitted(story)


def test_an_operator_that_is_hindered_may_keep_its_share() -> None:
    story = without("every-840")
    story.change_life(201, hindered=[(835, 890)])
    permitted(story)


def test_a_rule_by_hand_holds_from_when_an_operator_has_seen_it() -> None:
    story = a_good_day()
    rule = {"cron": "* * * * *", "timezone": "UTC", "enabled": True, "payload": {}}
    story.store(835, "admin", "new", rule)
    permitted(story)


def test_a_rule_by_hand_that_was_seen_has_to_fire() -> None:
    story = a_good_day()
    rule = {"cron": "* * * * *", "timezone": "UTC", "enabled": True, "payload": {}}
    story.store(785, "admin", "new", rule)
    expect(story, "G1", "new", "was lost")


def late(by: float) -> Story:
    story = without("every-240")
    story.dispatch(story.create("every", 240, 240 + by), B, 240.3 + by)
    return story


def test_a_late_run() -> None:
    expect(late(26), "G1", "every-240", "late for no reason")


def test_a_loaded_machine_may_be_slow() -> None:
    permitted(late(24))


def test_late_after_an_operator_died() -> None:
    story = late(29)
    story.change_life(202, ended=230, code=-9)
    permitted(story)


def test_late_in_an_outage() -> None:
    story = late(29)
    story.outages = [Outage("apiserver", t(235), t(266))]
    permitted(story)


def takeover(late_by: float, *, op_1: float | None = None) -> Story:
    """An operator is killed 10 s before a due time; `op_1`: the other one is killed then, another one comes.

    Nothing else is due, so that nothing but this run is late.
    """
    story = Story()
    story.life("op-1", "operator", 201, 0, 2)
    story.life("op-2", "operator", 202, 0, 2)
    story.life("b", "host", 102, 1, 5)
    story.change_life(202, ended=230, code=-9)
    if op_1 is not None:
        story.change_life(201, ended=op_1, code=-9)
        story.life("op-1", "operator", 203, 700, 703)
    story.apply(20, "b", "once", cron="4 * * * *")
    story.dispatch(story.create("once", 240, 240 + late_by), B, 240.3 + late_by)
    return story


def test_late_long_after_an_operator_died() -> None:
    expect(takeover(500), "G1", "once-240", "an operator was able to fire it by +285.0 s")


@pytest.mark.parametrize("by", [16, 29, 44])
def test_late_while_the_share_of_a_dead_operator_is_taken_over(by: float) -> None:
    permitted(takeover(by))


def test_late_because_the_heir_was_lost_as_well() -> None:
    permitted(takeover(464, op_1=274))


def test_late_though_the_heir_lived_for_long_enough() -> None:
    expect(takeover(464, op_1=290), "G1", "once-240", "an operator was able to fire it")


def a_calm_day(*late: float) -> Story:
    """One schedule that is due every minute, and how late each of its runs is."""
    story = Story()
    story.life("op-1", "operator", 201, 0, 2)
    story.life("b", "host", 102, 1, 5)
    story.apply(20, "b", "every")
    for number, seconds in enumerate(late, 1):
        due = number * 60.0
        story.dispatch(story.create("every", due, due + seconds), B, due + seconds + 0.3)
    story.ended = (len(late) + 1) * 60.0 - 1
    return story


def test_all_late_within_the_slack_of_a_single_one() -> None:
    (seen,) = found(a_calm_day(*[24.0] * 12))
    assert seen.guarantee == "G1"
    assert "runs that nothing stood in the way of came 24.0 s late or later" in seen.what


@pytest.mark.parametrize(
    "late", [[24.0] * 5 + [0.2] * 7, [4.9] * 12, [24.0] * 7], ids=["some", "a little", "few"]
)
def test_late_once_in_a_while(late: list[float]) -> None:
    permitted(a_calm_day(*late))


def test_all_late_where_very_many_are_due_at_once() -> None:
    history = a_calm_day(*[24.0] * 12).history()
    assert check(history)
    assert check(history, Slack(crowd=0)) == []


def no_host(killed: float = 590) -> Story:
    """All hosts are killed before the due time of 600 s, and come back after it."""
    story = a_good_day()
    story.forget("half-600")
    story.change_life(102, ended=killed, code=-9)
    story.change_life(103, ended=killed, code=-9)
    story.life("b", "host", 104, 640, 645)
    story.change("calls", lambda call: call.begun > t(600), host="b", pid=104)
    return story


def test_without_a_host_the_due_time_is_skipped() -> None:
    permitted(no_host())


def test_without_a_host_a_run_may_be_made_and_cancelled() -> None:
    story = no_host()
    story.save(story.create("half", 600), "op-1", 620, phase="Cancelled", lastError="nobody was there")
    permitted(story)


def test_without_a_host_a_run_must_not_start() -> None:
    story = no_host()
    story.dispatch(story.create("half", 600), ("b", 104), 646)
    expect(story, "G1", "half-600", "no host was there")


def test_without_a_host_a_run_must_not_stay() -> None:
    """Nor wait for more than the window."""
    story = no_host()
    story.create("half", 600)
    permitted(story)
    story.bounds = Bounds(catch_up_window=190.0)
    seen = found(story)
    assert {each.run_id for each in seen} == {"half-600"}
    assert "not Cancelled" in seen[0].what


def test_a_host_that_died_at_the_due_time_may_have_been_there() -> None:
    story = no_host(killed=599.5)
    story.dispatch(story.create("half", 600), ("b", 104), 646)
    permitted(story)


def test_a_run_while_disabled() -> None:
    story = a_good_day()
    story.dispatch(story.create("every", 600), B, 600.3)
    seen = found(story)
    assert ("G1", "every-600") in {(each.guarantee, each.run_id) for each in seen}


def test_a_run_that_no_rule_asks_for() -> None:
    story = a_good_day()
    story.dispatch(story.create("half", 660), B, 660.3)
    expect(story, "G1", "half-660", "no rule")


def test_a_run_for_a_time_before_the_rule_was_there() -> None:
    story = a_good_day()
    story.apply(790, "a", "new")
    story.dispatch(story.create("new", 780, 791), B, 791.3)
    story.dispatch(story.create("new", 840), B, 840.3)
    expect(story, "G1", "new-780", "no rule")


def test_a_run_for_a_time_before_it_was_enabled() -> None:
    story = a_good_day()
    story.dispatch(story.create("every", 660, 701), B, 701.3)
    expect(story, "G1", "every-660", "no rule")


def test_the_run_of_a_rule_that_was_replaced_since() -> None:
    story = without("every-840")
    story.create("every", 840, 851)
    story.apply(845, "a", "every", cron="7 3 * * *")
    story.dispatch("every-840", B, 851.3)
    permitted(story)


def test_a_run_before_its_due_time() -> None:
    story = without("every-240")
    story.dispatch(story.create("every", 240, 237), B, 240.3)
    expect(story, "G1", "every-240", "before its due time")


def test_a_run_beyond_the_window() -> None:
    story = late(75)
    story.bounds = Bounds(catch_up_window=50.0)
    assert {each.guarantee for each in found(story)} == {"G1"}
    assert any("beyond the 50 s" in each.what for each in found(story))


def test_a_request_that_was_held_up_may_arrive_beyond_the_window() -> None:
    story = late(75)
    story.bounds = Bounds(catch_up_window=50.0)
    story.change_life(201, hindered=[(238, 310)])
    permitted(story)


def test_a_run_cancelled_for_nothing() -> None:
    story = without("every-240")
    story.save(story.create("every", 240), "b", 241, phase="Cancelled")
    expect(story, "G1", "every-240", "was cancelled")


def test_a_run_cancelled_for_a_pause() -> None:
    story = without("every-480")
    story.create("every", 480)
    story.save("every-480", "b", 500.5, phase="Cancelled")
    permitted(story)


def test_the_last_host_asked_to_end_proves_nothing() -> None:
    story = without("every-840")
    story.change_life(102, asked_to_end=835, ended=842, code=0)
    story.change_life(103, asked_to_end=835, ended=842, code=0)
    permitted(story)


def test_a_run_by_hand_is_nobodys_fault() -> None:
    story = a_good_day()
    story.dispatch(story.create("every", 615, by="admin"), A2, 616)
    assert all(each.guarantee == "G5" for each in found(story))


def undone(*, run: str = "every-240", earlier: bool = True) -> Story:
    """An apply at 238 s fails, but is stored until 243 s, when the old rule is put back."""
    story = a_good_day()
    told = "SchedulerUnavailable: The schedule was not saved."
    rule = {"cron": "7 3 * * *", "timezone": "UTC", "enabled": True, "payload": {"prompt": "hello", "n": 1.0}}
    story.commands.append(Command("a", "apply", t(238), t(239), told, deployment_id="every", schedule=rule))
    old = dict(story.specs["every"], activeSince=iso(t(20.02)))
    put = {"cron": "* * * * *", "timeZone": "UTC", "activeSince": iso(t(20.02)), "activeUntil": iso(t(243))}
    back = old | {"activeSince": iso(t(243))} | ({"earlierRules": [put]} if earlier else {})
    for at, spec in ((238.1, old | {"cron": "7 3 * * *", "activeSince": iso(t(238.1))}), (243, back)):
        story.write(at, "a", "update", "every", resource="deploymentschedules", sent={"spec": spec})
    story.forget(run)
    return story


def test_a_rule_that_was_put_back_has_held_all_the_time() -> None:
    story = undone()
    story.dispatch(story.create("every", 240, 244), B, 244.3)
    permitted(story)


def test_a_rule_that_was_put_back_need_not_have_fired() -> None:
    permitted(undone())


def test_a_rule_that_was_not_put_back_has_not_held() -> None:
    story = undone(earlier=False)
    story.dispatch(story.create("every", 240, 244), B, 244.3)
    expect(story, "G1", "every-240", "no rule")


def test_a_rule_that_may_be_undone_need_not_fire() -> None:
    story = undone()
    story.change("writes", lambda w: w.received == t(238.1), after=None)
    story.dispatch(story.create("every", 240, 244), B, 244.3)
    permitted(story)
