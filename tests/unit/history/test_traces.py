"""G1: what a schedule's status tells of due times without a run.

In the good day `every` is disabled from 500 s to 700 s; at 600 s only `half` is due.
"""

from typing import Any

import pytest

from tests.faults.history.facts import Bounds, Command
from tests.unit.history.store import iso
from tests.unit.history.story import B, Story, a_good_day, expect, found, permitted, t


def nobody_there() -> Story:
    """No host is there at 600 s and 660 s; `minutely` is due at both, and nothing else is."""
    story = Story()
    story.life("op-1", "operator", 201, 0, 2)
    story.life("b", "host", 102, 1, 5)
    story.apply(510, "b", "minutely")
    story.dispatch(story.create("minutely", 540), B, 540.3)
    story.change_life(102, ended=590, code=-9)
    story.life("b", "host", 104, 685, 690)
    for due in (720, 780, 840):
        story.dispatch(story.create("minutely", due), ("b", 104), due + 0.3)
    return story


def told(count: int, *, due: float = 660, reason: str = "NoAstraBoxProcess", at: float = 685) -> Story:
    story = nobody_there()
    story.skip("minutely", at, due, reason, count=count)
    return story


def test_each_is_counted() -> None:
    permitted(told(2))


@pytest.mark.parametrize(("count", "words"), [(1, "are 2 at least"), (3, "are 2 at most")])
def test_a_wrong_count(count: int, words: str) -> None:
    expect(told(count), "G1", "minutely", f"tells of {count} skipped due times, without a run {words}")


def test_none_is_counted() -> None:
    expect(nobody_there(), "G1", "minutely", "tells of 0 skipped due times, without a run are 2 at least")


def test_more_are_counted_than_have_no_run() -> None:
    story = a_good_day()
    story.skip("every", 300, 240, "NoAstraBoxProcess")
    seen = found(story)
    assert {(each.guarantee, each.deployment_id) for each in seen} == {("G1", "every")}
    assert any("without a run are 0 at most" in each.what for each in seen)
    assert any("it has a run, or never was due" in each.what for each in seen)


def test_those_of_a_disabled_schedule_are_none() -> None:
    story = a_good_day()
    story.skip("every", 661, 660, "NoAstraBoxProcess", count=3)
    assert any("without a run are 0 at most" in each.what for each in found(story))


def test_a_run_that_was_cancelled_may_have_been_skipped_as_well() -> None:
    story = nobody_there()
    run = story.create("minutely", 600)
    story.save(run, "op-1", 620, phase="Cancelled")
    story.skip("minutely", 685, 660, "NoAstraBoxProcess", count=2)
    permitted(story)


@pytest.mark.parametrize("count", [1, 2])
def test_what_an_operator_had_counted_may_be_lost_with_it(count: int) -> None:
    story = told(count, at=690)
    story.change_life(201, ended=650, code=-9)
    story.life("op-1", "operator", 202, 651, 653)
    permitted(story)


def test_nothing_is_sure_where_a_change_failed() -> None:
    story = nobody_there()
    error = "SchedulerUnavailable: The schedule was not saved."
    rule = {"cron": "* * * * *", "timezone": "UTC", "enabled": True, "payload": {}}
    story.commands.append(
        Command("b", "apply", t(530), t(538), error, deployment_id="minutely", schedule=rule)
    )
    permitted(story)


def test_nothing_is_sure_of_a_schedule_that_was_made_anew_a_moment_later() -> None:
    story = nobody_there()
    story.delete(661, "b", "minutely")
    story.apply(700, "b", "minutely")
    permitted(story)


def test_a_schedule_that_a_hand_wrote_is_not_judged() -> None:
    story = told(7)
    rule = {"cron": "* * * * *", "timezone": "UTC", "enabled": True, "payload": {"prompt": "hello", "n": 1.0}}
    story.store(520, "admin", "minutely", rule)
    permitted(story)


def test_a_host_that_was_there_is_no_reason() -> None:
    story = a_good_day()
    story.forget("every-480")
    story.skip("every", 516, 480, "NoAstraBoxProcess")
    expect(story, "G1", "every", "was skipped for NoAstraBoxProcess: a host was there")


def test_skipped_for_the_window_before_its_end() -> None:
    expect(told(2, reason="OutsideCatchUpWindow"), "G1", "minutely", "it was told at an age of 25 s")


def test_skipped_for_the_window() -> None:
    story = told(2, reason="OutsideCatchUpWindow")
    story.bounds = Bounds(catch_up_window=25.0)
    permitted(story)


def test_skipped_for_a_disable_that_there_was_not() -> None:
    expect(told(2, reason="ScheduleDisabled"), "G1", "minutely", "it stayed enabled")


@pytest.mark.parametrize("reason", ["NameTaken", "Tuesday"])
def test_another_reason(reason: str) -> None:
    assert [each.deployment_id for each in found(told(2, reason=reason))] == ["minutely"]


def owing(*, disabled: bool) -> Story:
    """The rule of before 545 s is owed a due time by what was stored since, and gets no run."""
    story = nobody_there()
    rule: dict[str, Any] = {"cron": "7 3 * * *", "timezone": "UTC", "enabled": not disabled}
    story.apply(665, "a", "minutely", **rule)
    spec = story.specs["minutely"]
    since, until = iso(t(509.9)), iso(t(665))
    earlier = {"cron": "* * * * *", "timeZone": "UTC", "activeSince": since, "activeUntil": until}
    spec["earlierRules"] = [earlier | ({"disabled": True} if disabled else {})]
    for due in (720, 780, 840):
        story.forget(f"minutely-{due}")
    story.life("a", "host", 101, 664, 664.5)
    return story


@pytest.mark.parametrize("disabled", [False, True])
def test_what_an_earlier_rule_owes_is_counted(disabled: bool) -> None:
    story = owing(disabled=disabled)
    reason = "ScheduleDisabled" if disabled else "NoAstraBoxProcess"
    story.skip("minutely", 690, 660, reason, count=2)
    permitted(story)
