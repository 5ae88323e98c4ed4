"""G9 and G10."""

import pytest

from tests.faults.history.errors import foreign_word
from tests.faults.history.facts import Command, Outage
from tests.unit.history.story import Story, a_good_day, by_name, expect, found, permitted, t


def answered(error: str, deployment: str = "every") -> Story:
    story = a_good_day()
    rule = {
        "deployment_id": deployment,
        "cron": "* * * * *",
        "timezone": "UTC",
        "enabled": True,
        "payload": {},
    }
    story.commands.append(
        Command("a", "apply", t(450), t(451), error, deployment_id=deployment, schedule=rule)
    )
    return story


@pytest.mark.parametrize(
    "error",
    [
        "SchedulerUnavailable: The schedule was not saved: the scheduler's store is not available.",
        "InvalidSchedule: The expression is refused: 61 is not a minute",
        "ScheduleCapacityExceeded: No more than 500 enabled schedules are accepted: disable another one.",
        "SchedulerUnavailable: The schedules of Deployment every could not be stored.",
    ],
)
def test_errors_of_the_seam(error: str) -> None:
    permitted(answered(error))


def test_an_error_may_quote_what_was_given() -> None:
    permitted(answered("InvalidSchedule: The schedules of Deployment kube-404 are refused.", "kube-404"))


def test_another_type() -> None:
    expect(answered("HostError: Conflict"), "G9", "every", "HostError")


@pytest.mark.parametrize(
    "told",
    [
        "the Kubernetes API said no",
        "etcdserver: request timed out, etcd is away",
        "the object's resourceVersion is old",
        "HTTP 409",
        "it was refused (404)",
        "answered 503",
        "aiohttp.ClientConnectorError",
        "the Lease is gone",
        "no such RunInvocation",
        "the apiserver is away",
        "GET /apis/scheduler failed",
        "status code 422",
    ],
)
def test_words_of_the_engine(told: str) -> None:
    assert foreign_word(told)
    expect(answered(f"SchedulerUnavailable: {told}"), "G9", "every", "the word")


@pytest.mark.parametrize(
    "told", ["a release of 1500 units", "longer than 500 characters", "podium", "at 12.404"]
)
def test_words_of_nobody(told: str) -> None:
    assert foreign_word(told) is None


def test_words_of_the_engine_in_the_ledger() -> None:
    story = a_good_day()
    story.forget("every-240")
    story.create("every", 240)
    told = "RunPermanentError: etcd said no"
    story.claim("every-240", "b", 240.3)
    story.call("every-240", ("b", 102), "start_session", 240.4, 240.5, error=told)
    story.save("every-240", "b", 240.6, phase="Failed", lastError=told)
    expect(story, "G9", "every-240", "etcd")


def stop(asked: float, ended: float | None, code: int | None, **fields: object) -> Story:
    story = a_good_day()
    story.life("c", "host", 105, 300, 304)
    story.change_life(105, asked_to_end=asked, ended=ended, code=code, **fields)
    return story


@pytest.mark.parametrize("took", [0.5, 32.5])
def test_a_stop_in_time(took: float) -> None:
    permitted(stop(400, 400 + took, 0))


def only(story: Story, words: str) -> None:
    seen = found(story)
    assert [each.guarantee for each in seen] == ["G10"]
    assert words in seen[0].what


def test_a_stop_that_takes_too_long() -> None:
    only(stop(400, 434, 0), "ended 34.0 s after")


def test_a_stop_that_has_to_be_killed() -> None:
    only(stop(400, 440, -9), "ended 40.0 s after")


def test_a_stop_that_never_ends() -> None:
    only(stop(400, None, None), "has not ended")


def test_a_stop_with_another_code() -> None:
    only(stop(400, 402, 1), "with code 1")


def test_a_stop_in_an_outage_is_bounded_too() -> None:
    story = stop(615, 650, 0)
    story.outages = [Outage("etcd", t(612), t(652))]
    only(story, "ended 35.0 s after")


def test_a_host_that_is_killed_while_it_stops() -> None:
    permitted(stop(400, 401, -9))


def test_a_host_that_is_frozen_while_it_stops() -> None:
    permitted(stop(400, 450, 0, frozen=[(402, 440)]))


def test_a_host_that_is_asked_before_it_is_ready() -> None:
    story = stop(302, 303, -15)
    story.change_life(105, ready=None)
    permitted(story)


def test_applied_and_not_stored() -> None:
    story = a_good_day()
    story.drop("writes", lambda w: w.name == "half" and w.received == t(400.03))
    story.forget("half-480")
    story.dispatch(story.create("half", 480, payload={"half": [1, 1.0, True]}), ("b", 102), 481.3)
    for due in (600, 720):
        story.forget(f"half-{due}")
        story.dispatch(story.create("half", due, payload={"half": [1, 1.0, True]}), ("b", 102), due + 1.3)
    expect(story, "G10", "half", "no such schedule was stored")


def test_deleted_and_still_there() -> None:
    story = a_good_day()
    story.drop("writes", by_name("half", "delete"))
    seen = found(story)
    assert ("G10", "half") in {(each.guarantee, each.deployment_id) for each in seen}
    assert any("was there throughout" in each.what for each in seen)
    assert any("is there at the end" in each.what for each in seen)


def test_a_delete_of_nothing() -> None:
    story = a_good_day()
    story.commands.append(Command("a", "delete", t(820), t(821), deployment_id="half"))
    permitted(story)


def test_another_schedule_at_the_end() -> None:
    story = a_good_day()
    rule = {"cron": "* * * * *", "timezone": "UTC", "enabled": True, "payload": {"other": 1}}
    story.store(870, "b", "every", rule)
    seen = found(story)
    assert {(each.guarantee, each.deployment_id) for each in seen} == {("G10", "every")}
    assert any("not the one that was applied last" in each.what for each in seen)


def test_another_schedule_at_the_end_by_a_hand() -> None:
    story = a_good_day()
    rule = {"cron": "* * * * *", "timezone": "UTC", "enabled": True, "payload": {"other": 1}}
    story.store(870, "admin", "every", rule)
    permitted(story)


def test_another_schedule_at_the_end_by_a_command_without_an_answer() -> None:
    story = a_good_day()
    rule = {"cron": "* * * * *", "timezone": "UTC", "enabled": True, "payload": {"other": 1}}
    story.store(870, "b", "every", rule)
    story.commands.append(Command("b", "apply", t(869.9), None, deployment_id="every", schedule=rule))
    permitted(story)
