"""G10: a schedule changes because AstraBox asked for it; and G1 goes on by what AstraBox asked for.

`half` is due every two minutes: applied at 21 s by b, its payload edited at 400 s by b, deleted at 800 s.
"""

from typing import Any

import pytest

from tests.faults.history.facts import Command
from tests.unit.history.story import A2, Story, a_good_day, expect, found, permitted, t

HALF = {"cron": "*/2 * * * *", "timezone": "UTC", "enabled": True, "payload": {"half": 2}}
UNAVAILABLE = "SchedulerUnavailable: The schedule was not saved."


def a_day() -> Story:
    """The good day, to be changed before `half` is deleted."""
    story = a_good_day()
    writes = [write for write in story.writes if write.name == "half" and write.after is not None]
    story.specs["half"] = dict(writes[-1].after["spec"])  # type: ignore[index]
    return story


def change(story: Story, at: float, by: str, **changes: Any) -> None:
    """A write of `half` that no command of this story has."""
    story.store(at, by, "half", HALF | changes)


def asked(
    story: Story, at: float, host: str, took: float = 0.1, error: str | None = None, **rule: Any
) -> None:
    """An apply of `half` without its write."""
    given = HALF | rule
    story.commands.append(
        Command(host, "apply", t(at), t(at + took), error, deployment_id="half", schedule=given)
    )


def listed(**changes: Any) -> dict[str, Any]:
    """`half` in a list of schedules."""
    return {"deployment_id": "half"} | HALF | changes


def accused(story: Story, *words: str) -> None:
    """`half` has changed though nobody asked for it, and what else these words say of it."""
    seen = found(story)
    assert {each.deployment_id for each in seen} == {"half"}
    assert any(each.guarantee == "G10" and "changed it at" in each.what for each in seen), seen
    for word in words:
        assert any(word in each.what for each in seen), (word, seen)


def repaired(story: Story, at: float = 750) -> Story:
    """By b's reconcile."""
    story.reconcile(at, "b", listed())
    change(story, at + 0.5, "b")
    return story


def test_a_disable_by_nobody_excuses_no_due_time() -> None:
    story = a_day()
    story.forget("half-720")
    change(story, 610, "b", enabled=False)
    accused(repaired(story), "nobody asked for that", "the due time 2027-01-15T08:12Z was lost")


def test_a_delete_by_nobody_excuses_no_due_time() -> None:
    story = a_day()
    story.forget("half-720")
    story.write(610, "b", "delete", "half", resource="deploymentschedules")
    del story.specs["half"]
    seen = found(repaired(story))
    assert {(each.guarantee, each.deployment_id) for each in seen} == {("G10", "half"), ("G1", "half")}
    assert any("b deleted it" in each.what for each in seen)


def test_an_acknowledged_edit_that_is_reverted_excuses_no_due_time() -> None:
    story = a_day()
    story.apply(610, "a", "half", cron="* * * * *")
    change(story, 640, "b")
    story.reconcile(715, "b", listed(cron="* * * * *"))
    change(story, 715.5, "b", cron="* * * * *")
    story.dispatch(story.create("half", 780), A2, 781.3)
    accused(story, "nobody asked for that", "the due time 2027-01-15T08:11Z was lost")


def test_an_acknowledged_edit_that_holds() -> None:
    story = a_day()
    story.apply(610, "a", "half", cron="* * * * *")
    for due in (660, 780):
        story.dispatch(story.create("half", due), A2, due + 1.3)
    permitted(story)


@pytest.mark.parametrize(
    "changes", [{"payload": {"half": 2.0}}, {"cron": "7 3 * * *"}, {"timezone": "Asia/Tokyo"}]
)
def test_any_other_change_by_nobody(changes: dict[str, Any]) -> None:
    story = a_day()
    change(story, 725, "b", **changes)
    expect(story, "G10", "half", "b changed it at +725.0 s: nobody asked for that")


def test_a_write_of_the_same_changes_nothing() -> None:
    story = a_day()
    change(story, 725, "b")
    permitted(story)


def test_what_a_host_was_given_long_ago_is_over() -> None:
    story = a_day()
    change(story, 725, "b", payload={"half": [1, 1.0, True]})
    expect(story, "G10", "half", "nobody asked for that")


def test_what_another_host_was_given_is_no_reason() -> None:
    story = a_day()
    asked(story, 724.9, "a", took=5, error=UNAVAILABLE, payload={})
    change(story, 725, "b", payload={})
    expect(story, "G10", "half", "nobody asked for that")


def test_an_operator_deletes_no_schedule() -> None:
    story = a_day()
    story.write(725, "op-1", "delete", "half", resource="deploymentschedules")
    expect(story, "G10", "half", "op-1 deleted it")


def test_a_refused_command_changes_nothing() -> None:
    story = a_day()
    asked(story, 724.9, "b", error="InvalidSchedule: The expression is refused.", payload={})
    change(story, 725, "b", payload={})
    expect(story, "G10", "half", "nobody asked for that")


def test_a_list_may_change_it() -> None:
    story = a_day()
    story.reconcile(724, "b", listed(payload={}), took=2)
    change(story, 725, "b", payload={})
    permitted(story)


def test_a_list_without_it_may_delete_it() -> None:
    story = a_day()
    story.reconcile(724, "b", took=2)
    story.write(725, "b", "delete", "half", resource="deploymentschedules")
    permitted(story)


def test_a_list_does_not_undo_what_was_acknowledged_since() -> None:
    story = a_day()
    story.apply(725, "a", "half", payload={"half": 3})
    story.reconcile(724, "b", listed(), took=5)
    change(story, 726, "b")
    accused(story, "apply in a, which was acknowledged, is newer")


def test_a_list_does_not_undo_what_was_stored_but_not_yet_answered() -> None:
    story = a_day()
    story.apply(725, "a", "half", payload={"half": 3})
    story.change("commands", lambda each: each.sent == t(725), returned=t(727))
    story.reconcile(724, "b", listed(), took=5)
    change(story, 726, "b")
    accused(story, "is newer")


def test_a_list_may_be_stored_before_the_change_that_it_lacks() -> None:
    story = a_day()
    change(story, 723, "admin", payload={})
    story.reconcile(724, "b", listed(), took=5)
    change(story, 724.9, "b")
    story.apply(725, "a", "half", payload={"half": 3})
    permitted(story)


def test_a_list_that_was_given_after_the_answer_may_undo_it() -> None:
    """Nobody knows whether AstraBox has changed its mind in the meantime."""
    story = a_day()
    story.apply(725, "a", "half", payload={"half": 3})
    story.reconcile(725.2, "b", listed(), took=5)
    change(story, 726, "b")
    permitted(story)


def test_a_list_may_have_a_change_that_is_under_way() -> None:
    story = a_day()
    story.apply(725, "a", "half", payload={"half": 3})
    asked(story, 725.05, "a", took=9, error=UNAVAILABLE, payload={"half": 4})
    story.reconcile(725.08, "b", listed(payload={"half": 4}), took=5)
    change(story, 726, "b", payload={"half": 4})
    permitted(story)


def test_a_failed_command_is_undone() -> None:
    story = a_day()
    asked(story, 725, "a", took=8, error=UNAVAILABLE, payload={"half": 3})
    change(story, 725.1, "a", payload={"half": 3})
    change(story, 760, "a")
    permitted(story)


def test_a_failed_command_is_undone_by_its_own_host_only() -> None:
    story = a_day()
    asked(story, 725, "a", took=8, error=UNAVAILABLE, payload={"half": 3})
    change(story, 725.1, "a", payload={"half": 3})
    change(story, 760, "b")
    accused(story, "nobody asked for that")


def test_a_failed_command_is_undone_to_what_was_there_and_to_nothing_else() -> None:
    story = a_day()
    asked(story, 725, "a", took=8, error=UNAVAILABLE, payload={"half": 3})
    change(story, 725.1, "a", payload={"half": 3})
    change(story, 760, "a", payload={"half": [1, 1.0, True]})
    accused(story, "nobody asked for that")


def test_undoing_a_failed_command_does_not_undo_a_later_one() -> None:
    story = a_day()
    asked(story, 725, "a", took=8, error=UNAVAILABLE, payload={"half": 3})
    change(story, 725.1, "a", payload={"half": 3})
    story.apply(740, "b", "half", payload={"half": 4})
    change(story, 760, "a")
    accused(story, "apply in b, which was acknowledged, is newer")


def lost(at: float) -> Story:
    """An apply without an answer in a host that is killed half a second later; its write comes at `at`."""
    story = a_day()
    story.life("c", "host", 105, 600, 604)
    story.change_life(105, ended=725.5, code=-9)
    asked(story, 725, "c", payload={"half": 3})
    story.change("commands", lambda each: each.sent == t(725), returned=None)
    change(story, at, "c", payload={"half": 3})
    return story


def test_a_command_without_an_answer_may_be_carried_out_late() -> None:
    permitted(lost(745))


def test_a_command_without_an_answer_is_over_some_time_after_its_host() -> None:
    expect(lost(789), "G10", "half", "nobody asked for that")


def test_a_command_without_an_answer_does_not_undo_a_later_one() -> None:
    story = lost(745)
    story.writes = [write for write in story.writes if write.received != t(745)]
    story.apply(730, "a", "half", payload={"half": 4})
    change(story, 745, "c", payload={"half": 3})
    accused(story, "apply in a, which was acknowledged, is newer")


def overlapping(given: float) -> Story:
    """a is asked for an edit at 725 s and writes it at 736 s; b is asked for another one in between."""
    story = a_day()
    asked(story, 725, "a", took=12, payload={"half": 3})
    story.apply(given, "b", "half", payload={"half": 4})
    change(story, 736, "a", payload={"half": 3})
    return story


def test_of_two_commands_at_once_the_later_one_stands() -> None:
    accused(overlapping(730), "apply in b, which was acknowledged, is newer")


def test_of_two_commands_given_at_nearly_the_same_time_either_may_stand() -> None:
    assert all("newer" not in each.what for each in found(overlapping(726)))


def test_a_command_that_was_overtaken_writes_nothing() -> None:
    story = a_day()
    asked(story, 725, "a", took=12, payload={"half": 3})
    story.apply(730, "b", "half", payload={"half": 4})
    permitted(story)


def test_a_hand_may_change_it_and_a_list_repairs_that() -> None:
    story = a_day()
    change(story, 722, "admin", payload={})
    story.reconcile(730, "b", listed())
    change(story, 730.5, "b")
    permitted(story)
