"""The order of checks, writes and calls of one attempt, and what each fault between them leads to."""

import asyncio
import logging
from datetime import timedelta
from typing import Any

import pytest

from astrabox.seams.scheduler import RunPermanentError
from astrabox_scheduler_client.errors import (
    Forbidden,
    Invalid,
    MalformedAnswer,
    ServerError,
    TooManyRequests,
    Unreachable,
)
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL
from astrabox_scheduler_crds.run import Phase, RunStatus
from astrabox_scheduler_crds.transitions import Cancellation
from astrabox_scheduler_kubernetes.attempt import Attempt, HandedOver
from astrabox_scheduler_kubernetes.waiting import Entry
from tests.unit.provider.memory_runs import CLAIM, NOW, SESSION, TURN, WHOLE, World


async def test_order_of_writes_and_calls() -> None:
    world = World()
    assert await world.attempt(world.run()).carry_out() is None
    assert world.log == WHOLE
    assert world.status.phase == Phase.SUCCEEDED


async def test_what_was_not_kept_is_read() -> None:
    world = World()
    world.run()
    await world.attempt().carry_out()
    assert world.log == WHOLE


async def test_saved_session_is_used() -> None:
    """RE-11: step one is not called again."""
    world = World()
    run = world.run(status=RunStatus(phase=Phase.RUNNING, attempts=1, session_id="s0", started_at=NOW))
    await world.attempt(run).carry_out()
    assert world.log == ["save assignee,attempts", "admit_turn s0", TURN]


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(
    "fault",
    [
        Unreachable("lost", ambiguous=True),
        Unreachable("refused"),
        ServerError("500", ambiguous=True),
        TooManyRequests("429", retry_after=0.0),
        Forbidden("403"),
    ],
)
async def test_write_that_fails_is_repeated_alone(place: int, fault: Any) -> None:
    """Whether it was carried out or not: no call is made twice, no attempt counted twice."""
    world = World()
    world.runs.faults = [None] * place + [fault, fault]
    await world.attempt(world.run()).carry_out()
    assert [each for each in world.log if "save" not in each] == ["start_session", "admit_turn s1"]
    assert (world.status.phase, world.status.attempts, world.status.session_id) == (Phase.SUCCEEDED, 1, "s1")


async def test_label_of_somebody_repeats_no_call() -> None:
    """OO-08."""
    world = World()

    async def label(_: str) -> None:
        world.runs.label("r", team="a")

    world.during = label
    await world.attempt(world.run()).carry_out()
    assert world.log == WHOLE


@pytest.mark.parametrize("call", ["start_session", "admit_turn s1"])
@pytest.mark.parametrize("how", ["taken", "gone on with", "given back", "deleted", "ended"])
async def test_run_that_is_not_ours_any_more_is_dropped(call: str, how: str) -> None:
    """RE-03, RE-06: the result is not written over that of another, nor is another's taken for ours."""
    world = World()

    async def lose(now: str) -> None:
        if now != call:
            return
        if how == "taken":
            world.runs.label("r", **{ASSIGNEE_LABEL: "other"})
        elif how in ("gone on with", "given back"):
            # AstraBox answers the heir with the same ids.
            run = world.runs.stored["r"]
            found = {"session_id": "s1"} if call == "start_session" else {"session_id": "s1", "turn_id": "t1"}
            world.runs.put(run.changed(status=run.status.changed(attempts=2, **found)))
            world.runs.label("r", **{ASSIGNEE_LABEL: "other" if how == "gone on with" else "me"})
        elif how == "deleted":
            del world.runs.stored["r"]
        else:
            run = world.runs.stored["r"]
            world.runs.put(run.changed(status=run.status.changed(phase=Phase.FAILED)))

    world.during = lose
    attempt = world.attempt(world.run())
    assert await attempt.carry_out() is None
    assert world.log[-1] == call
    assert attempt.lost
    await attempt.hand_over()
    assert world.log[-1] == call


@pytest.mark.parametrize("call", ["", "start_session"])
@pytest.mark.parametrize("fence", ["not held", "lapsed"])
async def test_no_call_without_the_lease(call: str, fence: str) -> None:
    """Self-fencing, before the first call and between the two; what was learnt is saved all the same."""
    world = World()

    def lose() -> None:
        if fence == "lapsed":
            world.lapses = 1
        else:
            world.holding = False

    async def during(now: str) -> None:
        if now == call:
            lose()

    world.during = during
    if not call:
        lose()
    await world.attempt(world.run()).carry_out()
    assert [each for each in world.log if "save" not in each] == ([call] if call else [])
    assert world.status.session_id == ("s1" if call else None)


async def test_scheduled_run_confirmed_lately_is_started() -> None:
    world = World()
    await world.attempt(world.run(scheduled=True, age=3.0)).carry_out()
    assert (world.looks, world.log) == (0, WHOLE)


@pytest.mark.parametrize("age", [4.0, -60.0])
async def test_scheduled_run_confirmed_long_ago_is_looked_at_again(age: float) -> None:
    world = World()
    await world.attempt(world.run(scheduled=True, age=age)).carry_out()
    assert (world.looks, world.log) == (1, WHOLE)


async def test_scheduled_run_of_a_disabled_schedule_is_cancelled() -> None:
    """PA-04."""
    world = World()
    world.enabled = False
    await world.attempt(world.run(scheduled=True, age=4.0)).carry_out()
    assert world.log == ["save conditions,finishedAt,lastError,phase"]
    assert (world.status.phase, world.status.attempts) == (Phase.CANCELLED, 0)
    assert world.status.last_error == Cancellation.DISABLED.message


async def test_age_is_looked_at_again_after_the_claim() -> None:
    """PA-04: the claim took long (a slow store); the schedule was disabled meanwhile."""
    world = World()
    run = world.run(scheduled=True, age=3.0)
    save = world.desk.recorder.save

    async def slow(*arguments: Any) -> Any:
        saved = await save(*arguments)
        world.clock.at += timedelta(seconds=2)
        return saved

    world.desk.recorder.save = slow  # type: ignore[method-assign, assignment]
    world.enabled = False
    await world.attempt(run).carry_out()
    assert world.log == [CLAIM, "save conditions,finishedAt,lastError,phase"]
    assert world.status.phase == Phase.CANCELLED


async def test_started_run_of_a_disabled_schedule_goes_on() -> None:
    """G5: runs that have started go on."""
    world = World()
    world.enabled = False
    status = RunStatus(phase=Phase.RUNNING, attempts=1, started_at=NOW)
    await world.attempt(world.run(scheduled=True, age=60, status=status)).carry_out()
    assert (world.looks, world.status.phase) == (0, Phase.SUCCEEDED)


async def test_run_that_cannot_be_confirmed_waits_unclaimed() -> None:
    world = World()
    world.look_faults = [Unreachable("away")]
    again = await world.attempt(world.run(scheduled=True, age=4.0)).carry_out()
    assert again is not None
    assert world.log == []


async def test_claimed_run_is_not_started_before_it_is_confirmed() -> None:
    world = World()
    run = world.run(scheduled=True, age=3.0)
    save = world.desk.recorder.save

    async def slow(*arguments: Any) -> Any:
        world.desk.recorder.save = save  # type: ignore[method-assign]
        saved = await save(*arguments)
        world.clock.at += timedelta(seconds=2)
        return saved

    world.desk.recorder.save = slow  # type: ignore[method-assign, assignment]
    world.look_faults = [Unreachable("away")] * 3
    await world.attempt(run).carry_out()
    assert (world.looks, world.log) == (4, WHOLE)


async def test_failures_back_off_and_end() -> None:
    world = World(max_attempts=2)
    world.session = OSError("busy")
    run = world.run()
    again = await world.attempt(run).carry_out()
    assert again == NOW + timedelta(seconds=2)
    assert (world.status.phase, world.status.last_error) == (Phase.RETRYING, "OSError: busy")
    early = world.attempt(world.runs.stored["r"])
    assert await early.carry_out() == again
    assert world.log.count("start_session") == 1
    world.clock.at += timedelta(seconds=3)
    assert await world.attempt(world.runs.stored["r"]).carry_out() is None
    assert (world.status.phase, world.status.attempts) == (Phase.FAILED, 2)


async def test_permanent_error_ends_the_run() -> None:
    """PA-06."""
    world = World()
    world.turn = RunPermanentError("gone")
    assert await world.attempt(world.run()).carry_out() is None
    assert (world.status.phase, world.status.session_id) == (Phase.FAILED, "s1")
    assert world.status.last_error == "RunPermanentError: gone"


async def test_error_text_is_bounded() -> None:
    world = World()
    world.session = ValueError("x" * 10_000)
    await world.attempt(world.run()).carry_out()
    assert len(world.status.last_error or "") <= 1024


async def test_cancellation_inside_astrabox_is_a_failure() -> None:
    world = World()
    world.session = asyncio.CancelledError()
    again = await world.attempt(world.run()).carry_out()
    assert again is not None
    assert world.status.last_error == "start_session was cancelled inside AstraBox"


async def test_used_up_attempts_of_lost_processes_end_the_run() -> None:
    world = World(max_attempts=3)
    status = RunStatus(phase=Phase.RUNNING, attempts=3, started_at=NOW)
    assert await world.attempt(world.run(status=status)).carry_out() is None
    assert "start_session" not in world.log
    assert world.status.phase == Phase.FAILED


async def test_handed_over_attempts_do_not_count() -> None:
    world = World(max_attempts=3)
    status = RunStatus(phase=Phase.RUNNING, attempts=30, releases=28, started_at=NOW)
    await world.attempt(world.run(status=status)).carry_out()
    assert world.status.phase == Phase.SUCCEEDED


async def test_stop_before_the_claim_leaves_the_run_as_it_was() -> None:
    world = World()
    world.stopping = True
    attempt = world.attempt(world.run())
    with pytest.raises(HandedOver):
        await attempt.carry_out()
    await attempt.hand_over()
    assert world.log == [f"label {ASSIGNEE_LABEL}"]


async def test_stop_between_the_calls_keeps_the_session_and_counts_nothing() -> None:
    world = World()

    async def stop(_: str) -> None:
        world.stopping = True

    world.during = stop
    attempt = world.attempt(world.run())
    with pytest.raises(HandedOver):
        await attempt.carry_out()
    await attempt.hand_over()
    assert world.log == [CLAIM, "start_session", SESSION, "save releases", f"label {ASSIGNEE_LABEL}"]
    assert (world.status.attempts, world.status.releases, world.status.session_id) == (1, 1, "s1")
    assert ASSIGNEE_LABEL not in world.runs.stored["r"].metadata.labels


async def test_write_that_is_refused_for_good_ends_the_attempt_here() -> None:
    world = World()
    world.runs.faults = [None, Invalid("422")]
    attempt = world.attempt(world.run())
    assert await attempt.carry_out() is None
    assert attempt.lost


async def test_every_call_gets_a_payload_of_its_own() -> None:
    world = World()

    async def spoil(_: str) -> None:
        world.seen[-1].payload["n"] = "spoilt"  # type: ignore[index]

    world.during = spoil
    await world.attempt(world.run()).carry_out()
    first, second = world.seen
    assert first.payload is not second.payload
    assert (first.run_id, first.trigger, first.scheduled_for) == (second.run_id, "manual", None)


async def test_logs_name_the_type_of_an_error_only(caplog: pytest.LogCaptureFixture) -> None:
    """AstraBox's texts can quote a prompt: the ledger has them, the logs do not."""
    caplog.set_level(logging.DEBUG)
    secret = "the prompt"
    for fault in (ValueError(secret), RunPermanentError(secret)):
        world = World(max_attempts=2)
        world.session = fault
        run = world.run()
        while await world.attempt(run).carry_out() is not None:
            world.clock.at += timedelta(minutes=1)
            run = world.runs.stored["r"]
        assert secret in (world.status.last_error or "")
        status = world.status.changed(phase=Phase.RUNNING, attempts=9)
        await world.attempt(world.run(status=status)).carry_out()
    assert secret not in caplog.text
    assert "ValueError" in caplog.text
    assert "RunPermanentError" in caplog.text


async def test_run_that_cannot_be_read_is_told_of_once_for_each_version(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()

    async def get(name: str) -> Any:
        raise MalformedAnswer("not the shape")

    world.runs.get = get  # type: ignore[method-assign]
    for version in ("1", "1", "1", "2", "2"):
        await Attempt(Entry("r", "me", 0, version), world.desk).carry_out()
    assert [each.levelname for each in caplog.records].count("ERROR") == 2
