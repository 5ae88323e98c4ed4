"""G5. The schedule `every` is disabled at 500.1 s and enabled at 700 s; `half` is deleted at 800.1 s."""

from tests.faults.history.facts import Command
from tests.unit.history.story import A2, B, Story, a_good_day, expect, found, permitted, t


def started(at: float) -> Story:
    """A run of 480 s that is started for the first time at `at`."""
    story = a_good_day()
    story.forget("every-480")
    story.create("every", 480)
    story.dispatch("every-480", B, at)
    return story


def test_started_too_late_after_a_disable() -> None:
    expect(started(505.2), "G5", "every-480", "5.20 s after its schedule was paused")


def test_started_within_the_bound() -> None:
    permitted(started(504.9))


def test_what_had_started_goes_on() -> None:
    story = started(498)
    story.drop("calls", lambda call: call.run_id == "every-480" and call.step == "admit_turn")
    story.drop("writes", lambda w: w.name == "every-480" and "turnId" in (w.after or {}).get("status", {}))
    story.admit("every-480", B, 520)
    permitted(story)


def begun_before(host: str) -> Story:
    """The start of a run is saved before the disable, and AstraBox is called long after it."""
    story = a_good_day()
    story.forget("every-480")
    story.create("every", 480)
    story.claim("every-480", host, 498)
    labels = {"scheduler.astrabox.io/assignee": "b"}
    story.write(519.9, "b", "patch", "every-480", sent={"metadata": {"labels": labels}})
    story.dispatch("every-480", B, 520)
    return story


def test_what_a_lost_process_had_begun_goes_on() -> None:
    story = begun_before("a")
    story.change_life(101, ended=498.5, code=-9)
    assert not [each for each in found(story) if each.guarantee == "G5"]


def test_a_start_that_is_saved_long_before_the_call_is_none() -> None:
    assert [each for each in found(begun_before("b")) if each.guarantee == "G5"]


def test_a_disable_without_an_answer_bounds_nothing() -> None:
    story = started(505.2)
    story.change("commands", lambda each: each.sent == t(500), returned=None)
    permitted(story)


def test_an_enable_in_between_ends_it() -> None:
    story = started(506)
    story.apply(504, "a", "every", enabled=True)
    story.specs["every"]["enabled"] = True
    seen = [each for each in found(story) if each.guarantee == "G5"]
    assert seen == []


def test_an_enable_under_way_at_the_same_time() -> None:
    story = started(505.2)
    story.commands.append(
        Command("a", "apply", t(499.9), t(500.2), deployment_id="every", schedule={"enabled": True})
    )
    assert [each for each in found(story) if each.guarantee == "G5"] == []


def test_a_call_that_was_frozen_behind_its_check() -> None:
    story = started(510)
    story.change_life(102, frozen=[(490, 509.5)])
    permitted(story)


def test_started_too_late_after_a_delete() -> None:
    story = a_good_day()
    story.forget("half-720")
    story.create("half", 720)
    story.dispatch("half-720", A2, 805.2)
    assert ("G5", "half-720") in {(each.guarantee, each.run_id) for each in found(story)}


def test_enabled_by_nobody() -> None:
    story = a_good_day()
    rule = {"cron": "7 3 * * *", "timezone": "UTC", "enabled": True, "payload": {}}
    story.store(840, "b", "half", rule)
    assert ("G5", "half") in {(each.guarantee, each.deployment_id) for each in found(story)}
    assert "half" in {each.deployment_id for each in found(story)}


def test_a_host_that_starts_while_a_delete_is_made_must_not_bring_it_back() -> None:
    story = a_good_day()
    rule = {"cron": "7 3 * * *", "timezone": "UTC", "enabled": True, "payload": {}}
    story.store(801, "c", "half", rule)
    story.life("c", "host", 105, 798, 802)
    given = ({"deployment_id": "half", "cron": "7 3 * * *", "enabled": True},)
    story.commands.append(Command("c", "reconcile", t(800.05), t(802), given=given))
    assert ("G5", "half") in {(each.guarantee, each.deployment_id) for each in found(story)}


def test_a_reconcile_may_enable_it() -> None:
    story = a_good_day()
    rule = {"cron": "7 3 * * *", "timezone": "UTC", "enabled": True, "payload": {}}
    given = ({"deployment_id": "half", **rule},)
    story.commands.append(Command("a", "reconcile", t(830), t(831), given=given))
    story.store(830.5, "a", "half", rule)
    permitted(story)


def test_a_hand_may_enable_it() -> None:
    story = a_good_day()
    rule = {"cron": "7 3 * * *", "timezone": "UTC", "enabled": True, "payload": {}}
    story.store(840, "admin", "half", rule)
    permitted(story)
