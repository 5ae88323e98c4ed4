"""G6 to G8."""

import json
from typing import Any

import pytest

from tests.faults.history.facts import Bounds, Command, Outage
from tests.unit.history.story import A, Story, a_good_day, expect, found, of, permitted, t


def test_answered_and_not_saved() -> None:
    story = a_good_day()
    story.forget("again")
    expect(story, "G6", "again", "no such run")


def test_answered_before_it_was_saved() -> None:
    story = a_good_day()
    story.change("commands", lambda each: each.run_id == "again", returned=t(250.01))
    expect(story, "G6", "again", "after it was answered")


@pytest.mark.parametrize("run", ["by-hand", "again"])
def test_another_payload(run: str) -> None:
    story = a_good_day()
    spec = next(w.after["spec"] for w in story.writes if w.name == run and w.verb == "create" and w.after)
    spec["payload"] = json.dumps({"asked": "something else"})
    story.change("calls", lambda call: call.run_id == run, payload={"asked": "something else"})
    assert ("G6", run) in {(each.guarantee, each.run_id) for each in found(story)}


def test_a_replay_of_another_run() -> None:
    story = a_good_day()
    story.change("commands", lambda each: each.run_id == "again", replayed_from="every-60")
    assert ("G6", "again") in {(each.guarantee, each.run_id) for each in found(story)}


def test_a_requested_run_that_retention_took() -> None:
    story = a_good_day()
    story.bounds = Bounds(catch_up_window=200.0, history_limit=5)
    story.write(700, "op-1", "delete", "by-hand")
    permitted(story)


def second(payload: Any) -> Story:
    story = a_good_day()
    story.enqueue(260, A, "every", "second", payload=payload)
    story.drop("commands", lambda each: each.run_id == "second")
    return story


def test_two_runs_for_one_request() -> None:
    expect(second({"asked": "by-hand"}), "G6", "second", "2 manual runs are there for 1 requests")


def test_a_run_that_nobody_asked_for() -> None:
    expect(second({"other": 1}), "G6", "second", "0 requests")


@pytest.mark.parametrize("error", [None, "SchedulerUnavailable: The run was not saved. Try again."])
def test_a_request_without_a_final_answer_may_be_saved(error: str | None) -> None:
    story = second({"other": 1})
    returned = None if error is None else t(261)
    story.commands.append(
        Command(
            "a",
            "enqueue",
            t(259.9),
            returned,
            error,
            deployment_id="every",
            payload={"other": 1},
            trigger="manual",
        )
    )
    permitted(story)


def test_a_refused_request_is_not_saved() -> None:
    story = second({"other": 1})
    told = "InvalidSchedule: no"
    story.commands.append(
        Command(
            "a",
            "enqueue",
            t(259),
            t(260),
            told,
            deployment_id="every",
            payload={"other": 1},
            trigger="manual",
        )
    )
    expect(story, "G6", "second", "0 requests")


def withdrawn(caller: tuple[str, int], begun: float) -> Story:
    """b was asked at 260 s, has said at 270 s that the run is not saved, and it is; `caller` begins it."""
    story = a_good_day()
    story.enqueue(260, ("b", 102), "every", "second", payload={"other": 1})
    error = "SchedulerUnavailable: The run was not saved. Try again."
    story.change("commands", lambda each: each.run_id == "second", run_id=None, returned=t(270), error=error)
    story.drop("writes", lambda write: write.name == "second" and write.verb != "create")
    story.calls = [call for call in story.calls if call.run_id != "second"]
    story.attempts.pop("second")
    story.dispatch("second", caller, begun)
    return story


def test_a_run_that_is_not_saved_is_not_begun_by_its_host() -> None:
    expect(withdrawn(("b", 102), 275), "G6", "second", "after AstraBox was told that it is not saved")


def test_a_run_that_is_not_saved_is_not_begun_by_another() -> None:
    expect(withdrawn(A, 275), "G6", "second", "start_session began in a")


def test_a_run_that_is_not_saved_may_have_begun_before_that_was_said() -> None:
    permitted(withdrawn(A, 269))


def test_a_run_that_is_not_saved_and_cancelled() -> None:
    story = withdrawn(A, 275)
    story.drop("writes", lambda write: write.name == "second" and write.verb != "create")
    story.calls = [call for call in story.calls if call.run_id != "second"]
    story.save("second", "b", 280, phase="Cancelled")
    permitted(story)


@pytest.mark.parametrize("way", ["outage", "cut", "killed", "asked to end"])
def test_a_host_that_could_not_withdraw_its_run(way: str) -> None:
    story = withdrawn(A, 281)
    if way == "outage":
        story.outages = [Outage("etcd", t(259), t(271))]
    elif way == "cut":
        story.change_life(102, hindered=[(259, 280)])
    elif way == "killed":
        story.change_life(102, ended=270.5, code=-9)
        revived(story, 300)
    else:
        story.change_life(102, asked_to_end=270.5, ended=271, code=0)
        revived(story, 300)
    permitted(story)


def revived(story: Story, at: float) -> None:
    """Another life of b, which makes the calls from then on."""
    story.life("b", "host", 104, at - 25, at - 21)
    story.change("calls", lambda call: call.host == "b" and call.begun > t(at - 21), pid=104)


def test_a_cut_is_no_reason_to_begin_its_own_run() -> None:
    story = withdrawn(("b", 102), 281)
    story.change_life(102, hindered=[(259, 280)])
    expect(story, "G6", "second", "start_session began in b")


def test_of_two_requests_for_the_same_nobody_knows_which_run_is_whose() -> None:
    story = withdrawn(("b", 102), 275)
    story.commands.append(
        Command("b", "enqueue", t(261), None, deployment_id="every", payload={"other": 1}, trigger="manual")
    )
    permitted(story)


def test_two_answers_with_one_run() -> None:
    story = a_good_day()
    story.change(
        "commands",
        lambda each: each.run_id == "again",
        run_id="by-hand",
        trigger="manual",
        replayed_from=None,
    )
    assert ("G6", "by-hand") in {(each.guarantee, each.run_id) for each in found(story)}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("status", "failed"),
        ("session_id", "sess-x"),
        ("turn_id", None),
        ("error", "x"),
        ("payload", {"n": 1.0, "prompt": "hello"}),
        ("trigger", "manual"),
        ("scheduled_for", None),
        ("replayed_from_run_id", "x"),
    ],
)
def test_a_row_that_differs(field: str, value: object) -> None:
    story = a_good_day()

    def change(rows: list[dict[str, Any]]) -> None:
        for row in rows:
            if row["run_id"] == "every-240":
                row[field] = value

    story.touch_ledgers.append(change)
    expect(story, "G7", "every-240", f"another {field}")


def test_a_row_that_is_missing() -> None:
    story = a_good_day()
    story.touch_ledgers.append(lambda rows: rows.pop() if rows[0]["deployment_id"] == "half" else None)
    expect(story, "G7", "half-120", "lacks this run")


def test_a_row_too_many() -> None:
    story = a_good_day()
    extra = {"deployment_id": "half", "run_id": "half-0", "created_at": "2027-01-15T07:00:00Z"}
    story.touch_ledgers.append(
        lambda rows: rows.append(extra) if rows[0]["deployment_id"] == "half" else None
    )
    expect(story, "G7", "half-0", "not stored")


def test_rows_in_another_order() -> None:
    story = a_good_day()
    story.touch_ledgers.append(lambda rows: rows.reverse() if rows[0]["deployment_id"] == "half" else None)
    assert {(each.guarantee, each.deployment_id) for each in found(story)} == {("G7", "half")}


def test_a_run_that_was_deleted_too_young() -> None:
    story = a_good_day()
    story.bounds = Bounds(history_limit=5)
    story.write(700, "op-1", "delete", "by-hand")
    expect(story, "G7", "by-hand", "at an age of 500 s")


def test_a_run_that_was_deleted_from_among_the_newest() -> None:
    story = a_good_day()
    story.bounds = Bounds(catch_up_window=200.0, history_limit=8)
    story.write(700, "op-1", "delete", "by-hand")
    expect(story, "G7", "by-hand", "with 6 newer runs")


def test_a_run_that_was_deleted_before_its_end() -> None:
    story = a_good_day()
    story.bounds = Bounds(catch_up_window=1.0, history_limit=0)
    story.forget("every-840")
    story.create("every", 840)
    story.write(850, "op-1", "delete", "every-840")
    expect(story, "G7", "every-840", "while it was Queued")


@pytest.mark.parametrize("payload", [{"prompt": "hello", "n": 1}, {"n": 1.0, "prompt": "hello"}, {}])
def test_a_call_with_another_payload(payload: object) -> None:
    story = a_good_day()
    story.change("calls", of("every-240", "admit_turn"), payload=payload)
    expect(story, "G8", "every-240", "another payload")


def test_a_call_with_another_trigger() -> None:
    story = a_good_day()
    story.change("calls", of("every-240", "admit_turn"), trigger="manual")
    expect(story, "G8", "every-240", "another trigger")


def test_a_call_with_another_due_time() -> None:
    story = a_good_day()
    story.change("calls", of("every-240", "admit_turn"), scheduled_for="2027-01-15T08:05:00Z")
    expect(story, "G8", "every-240", "another due time")


def of_half(payload: object, due: float = 480, at: float | None = None) -> Story:
    """`half` had {"half": [1, 1.0, True]} until 400 s, since then {"half": 2}."""
    story = a_good_day()
    story.forget(f"half-{due:g}")
    run = story.create("half", due, at, payload=payload)
    story.dispatch(run, A, due + 1.3) if due < 300 else story.dispatch(run, ("b", 102), due + 1.3)
    return story


def test_a_run_with_an_old_payload() -> None:
    expect(of_half({"half": [1, 1.0, True]}), "G8", "half-480", "none that its schedule had")


def test_a_run_with_a_payload_of_later() -> None:
    expect(of_half({"half": 2}, 240), "G8", "half-240", "none that its schedule had")


def test_a_payload_is_compared_to_the_last_digit() -> None:
    expect(of_half({"half": [1.0, 1, True]}, 240), "G8", "half-240")


def test_a_payload_that_was_edited_between_due_time_and_create() -> None:
    story = of_half({"half": 3}, 480, 481)
    story.apply(480.5, "b", "half", cron="*/2 * * * *", payload={"half": 3})
    story.apply(490, "b", "half", payload={"half": 2})
    permitted(story)


def test_a_payload_that_was_rewritten() -> None:
    story = a_good_day()
    story.write(700, "b", "update", "every-240", sent={"spec": {"payload": "{}"}})
    assert ("G8", "every-240") in {(each.guarantee, each.run_id) for each in found(story)}
