"""Dispatch on a real API server: what is written when, and who may write it."""

import asyncio
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from astrabox.seams.scheduler import AdmittedTurn, RunInvocation, RunPermanentError
from astrabox_scheduler_client.errors import Conflict
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL, DEPLOYMENT_LABEL
from astrabox_scheduler_crds.run import Phase
from astrabox_scheduler_crds.transitions import status_patch, with_attempt
from tests.apiserver.provider.scenery import (
    QUICK,
    Held,
    Instant,
    Place,
    descriptors,
    kill,
    lease_of,
    rule,
    true,
    until,
)


def minute(now: datetime) -> datetime:
    return now.replace(second=0, microsecond=0)


async def test_a_run_costs_three_status_writes(place: Place) -> None:
    """The claim, the Session, the turn; and nothing is read."""
    async with place.running(Instant()) as provider:
        calls = place.recorded(provider)
        run = await provider.enqueue("d", {}, trigger="manual")
        done = await place.until_phase(run.run_id, "Succeeded")
        await provider.stop()
    mine = [call for call in calls if run.run_id in call]
    assert mine == [f"PATCH {run.run_id}/status"] * 3
    assert (done.status.attempts, done.status.releases) == (1, 0)
    assert done.status.started_at is not None


async def test_run_made_by_kubectl_without_status_or_labels_is_adopted(place: Place) -> None:
    """AL-09: nothing rests on a status after create; an absent one is pending, and it gets its label."""
    name = await place.create_run(labelled=False)
    async with place.running(Instant()):
        done = await place.until_phase(name, "Succeeded")
    assert done.metadata.labels[DEPLOYMENT_LABEL] == "d"
    assert done.status.attempts == 1


async def test_label_edit_between_call_and_save_repeats_no_call(place: Place) -> None:
    """OO-08: the Session is saved on top of somebody's label, and start_session is not called again."""
    handler = Held("start_session")
    async with place.running(handler) as provider:
        run = await provider.enqueue("d", {}, trigger="manual")
        await until(lambda: true(handler.started))
        await place.api.runs.patch_labels(run.run_id, {"team": "a"})
        handler.go.set()
        done = await place.until_phase(run.run_id, "Succeeded")
    assert handler.started == [run.run_id]
    assert done.metadata.labels["team"] == "a"


async def test_two_who_claim_the_same_version_are_one(place: Place) -> None:
    """OO-09: exactly one of the writes with one version is carried out."""
    name = await place.create_run()
    run = await place.api.runs.get(name)
    now = place.clock.now()

    async def claim(who: str) -> bool:
        patch = status_patch(run.status, with_attempt(run.status, who, now))
        try:
            await place.api.runs.patch_status(name, patch, run.metadata.resource_version)
        except Conflict:
            return False
        return True

    assert sorted(await asyncio.gather(*(claim(f"p{n}") for n in range(5)))) == [False] * 4 + [True]


async def test_many_providers_and_unassigned_runs_give_one_call_each(place: Place) -> None:
    """OO-09, RE-01: whoever sees the same runs, each is called for once, and none is left."""
    handlers = [Instant() for _ in range(3)]
    async with (
        place.running(handlers[0]),
        place.running(handlers[1]),
        place.running(handlers[2]),
    ):
        names = {await place.create_run() for _ in range(30)}
        for name in names:
            await place.until_phase(name, "Succeeded")
    started = [name for handler in handlers for name in handler.started]
    assert sorted(started) == sorted(names)
    assert all(handler.started for handler in handlers), "the runs were not shared"


async def test_permanent_error_of_a_disabled_deployment_ends_the_run(place: Place) -> None:
    """PA-06: the run ends FAILED without a retry, with a visible reason; the schedule goes on."""

    class Gone(Instant):
        async def start_session(self, invocation: RunInvocation) -> str:
            await super().start_session(invocation)
            raise RunPermanentError("the Deployment is disabled")

    handler = Gone()
    async with place.running(handler) as provider:
        await provider.apply(rule())
        run = await provider.enqueue("d", {}, trigger="manual")
        done = await place.until_phase(run.run_id, "Failed")
        (row,) = await provider.list_runs("d")
    assert handler.started == [run.run_id]
    assert row.error == "RunPermanentError: the Deployment is disabled"
    assert {each.type: each.reason for each in done.status.conditions}["Failed"] == "PermanentError"
    assert (await place.api.schedules.get("d")).spec.enabled


async def test_deleted_run_cancels_its_handler_call(place: Place) -> None:
    """RE-06: the call is cancelled, the place is free, nothing is written."""
    handler = Held("start_session")
    async with place.running(handler, CONCURRENCY="1") as provider:
        first = await provider.enqueue("d", {}, trigger="manual")
        await until(lambda: true(handler.started))
        await place.api.runs.delete(first.run_id)
        await until(lambda: true(handler.cancelled))
        handler.go.set()
        second = await provider.enqueue("d", {}, trigger="manual")
        await place.until_phase(second.run_id, "Succeeded")
    assert handler.cancelled == [first.run_id]


async def test_run_given_to_another_cancels_its_handler_call(place: Place) -> None:
    """RE-06: the same when another process has taken it."""
    handler = Held("start_session")
    async with place.running(handler) as provider:
        run = await provider.enqueue("d", {}, trigger="manual")
        await until(lambda: true(handler.started))
        await place.api.runs.patch_labels(run.run_id, {ASSIGNEE_LABEL: "somebody-else"})
        await until(lambda: true(handler.cancelled))
    stored = await place.api.runs.get(run.run_id)
    assert stored.status.session_id is None


async def test_scheduled_run_of_a_disabled_schedule_is_not_started(place: Place) -> None:
    """PA-04: the run was created in the moment of the disable; it is looked at again before its start."""
    now = place.clock.now()
    handler = Instant()
    async with place.running(handler) as provider:
        await provider.apply(rule())
        await provider.apply(rule(enabled=False))
        name = await place.create_run(
            due=minute(now), confirmed=now - timedelta(seconds=30), assignee=lease_of(provider)
        )
        done = await place.until_phase(name, "Cancelled")
        (row,) = await provider.list_runs("d")
    assert handler.started == []
    assert done.status.attempts == 0
    assert row.error == "The schedule was disabled or deleted before this run was started."


async def test_scheduled_run_confirmed_a_moment_ago_is_not_read_again(place: Place) -> None:
    """The operator's own look counts, while it is fresh: a run then needs no other."""
    handler = Instant()
    async with place.running(handler) as provider:
        now = place.clock.now()
        name = await place.create_run(due=minute(now), confirmed=now, assignee=lease_of(provider))
        await place.until_phase(name, "Succeeded")
    assert handler.started == [name]


async def test_disable_cancels_what_waits_and_leaves_what_has_started(place: Place) -> None:
    """G5: of two due runs with one place, the started one goes on, the waiting one is cancelled."""
    now = place.clock.now()
    handler = Held("start_session")
    async with place.running(handler, CONCURRENCY="1") as provider:
        await provider.apply(rule())
        names = [
            await place.create_run(
                due=minute(now) - timedelta(minutes=n),
                confirmed=place.clock.now(),
                assignee=lease_of(provider),
            )
            for n in range(2)
        ]
        await until(lambda: true(handler.started))
        await provider.apply(rule(enabled=False))
        place.clock.advance(4)
        handler.go.set()
        phases = {(await place.until_phase(name, "Succeeded", "Cancelled")).status.phase for name in names}
    assert phases == {Phase.SUCCEEDED, Phase.CANCELLED}
    assert len(handler.started) == 1


async def test_deleted_schedule_goes_at_once_and_its_history_stays(place: Place) -> None:
    """RT-06, AL-11: runs have no owner; a deleted schedule goes at once and its history stays."""
    async with place.running(Instant()) as provider:
        await provider.apply(rule())
        run = await provider.enqueue("d", {}, trigger="manual")
        await place.until_phase(run.run_id, "Succeeded")
        schedule = await place.api.schedules.get("d")
        await provider.delete("d")
        assert [each.metadata.name for each in (await place.api.schedules.list()).items] == []
        assert [each.run_id for each in await provider.list_runs("d")] == [run.run_id]
    assert schedule.metadata.uid is not None


async def test_sweep_finds_what_the_watch_missed(place: Place) -> None:
    """WA-06: a run labelled for us that no event told of is found by the list."""
    handler = Instant()
    async with place.running(handler) as provider:
        dispatcher = provider._engine()._life.dispatcher  # type: ignore[union-attr]
        dispatcher._intake._take = lambda *_: None
        name = await place.create_run(assignee=lease_of(provider))
        await place.until_phase(name, "Succeeded")
    assert handler.started == [name]


async def test_silent_watch_is_noticed(place: Place) -> None:
    """WA-06: a connection on which nothing comes any more is given up, and the runs are listed again."""
    handler = Instant()
    timing = replace(QUICK, watch_idle=0.5, sweep=600.0, lease_duration=60.0, lease_period=5.0)
    async with place.running(handler, timing, REQUEST_TIMEOUT_SECONDS="0.5") as provider:
        warm = await provider.enqueue("d", {}, trigger="manual")
        await place.until_phase(warm.run_id, "Succeeded")
        place.door.freeze()
        name = await place.create_run(assignee=lease_of(provider))
        await place.until_phase(name, "Succeeded")
        # TLS says goodbye for up to 30 s on a connection that does not answer; the test's loop ends before.
        place.door.cut()
        await asyncio.sleep(0.1)
    assert handler.started == [warm.run_id, name]


async def test_stored_payload_that_is_no_json_fails_its_run_alone(place: Place) -> None:
    """AL-09: a run written by hand ends with a clear error, and the history stays readable."""
    handler = Instant()
    async with place.running(handler) as provider:
        bad = await place.create_run(payload="not json")
        good = await place.create_run()
        await place.until_phase(bad, "Failed")
        await place.until_phase(good, "Succeeded")
        rows = {row.run_id: row for row in await provider.list_runs("d")}
    assert rows[bad].error == "the stored payload is not JSON"
    assert rows[bad].payload == {}
    assert handler.started == [good]


async def test_ids_of_every_kind_are_dispatched(place: Place) -> None:
    """AL-01: 63 and 253 characters, upper case, dots, underscores: names and labels stay valid."""
    ids = ["x" * 63, "y" * 253, "UPPER.Case_and-more", "a.b", "0", ""]
    async with place.running(Instant()) as provider:
        for each in ids:
            await provider.apply(rule(each))
            run = await provider.enqueue(each, {}, trigger="manual")
            await place.until_phase(run.run_id, "Succeeded")
            assert len(run.run_id) <= 80
            assert [row.deployment_id for row in await provider.list_runs(each)] == [each]


async def test_a_thousand_calls_leave_descriptors_as_they_were(place: Place) -> None:
    """WA-11: one client, and no connection is left by any call."""
    async with place.running(Instant(), KUBECONFIG=str(place.direct)) as provider:
        await provider.apply(rule(enabled=False))
        await asyncio.gather(*(provider.list_runs("d") for _ in range(20)))
        before = descriptors()
        for _ in range(40):
            await asyncio.gather(*(provider.list_runs("d") for _ in range(20)))
            await asyncio.gather(*(provider.apply(rule(payload={"n": n}, enabled=False)) for n in range(5)))
        after = descriptors()
    assert after <= before + 8


async def test_calls_before_start_and_after_stop_leave_nothing_open(place: Place) -> None:
    """The store needs configure only: each call opens what it needs and closes it."""
    provider = place.provider(KUBECONFIG=str(place.direct))
    await provider.apply(rule(enabled=False))
    run = await provider.enqueue("d", {}, trigger="manual")
    before = descriptors()
    for _ in range(5):
        await provider.list_runs("d")
    assert descriptors() <= before
    assert (await place.api.runs.get(run.run_id)).metadata.labels.get(ASSIGNEE_LABEL) is None
    handler = Instant()
    await provider.start(handler)
    await place.until_phase(run.run_id, "Succeeded")
    await provider.stop()
    assert [row.status for row in await provider.list_runs("d")] == ["completed"]
    await provider.start(handler)
    again = await provider.enqueue("d", {}, trigger="manual")
    await place.until_phase(again.run_id, "Succeeded")
    await provider.stop()


@pytest.mark.parametrize("answer", ["", None, 7, "x" * 1025, "\ud800"])
async def test_unusable_session_ids_are_failures(place: Place, answer: object) -> None:
    class Strange(Instant):
        async def start_session(self, invocation: RunInvocation) -> str:
            await super().start_session(invocation)
            return answer  # type: ignore[return-value]

    handler = Strange()
    async with place.running(handler, MAX_ATTEMPTS="2") as provider:
        run = await provider.enqueue("d", {}, trigger="manual")
        done = await place.until_phase(run.run_id, "Failed")
    assert len(handler.started) == 2
    assert "no usable Session id" in (done.status.last_error or "")


async def test_another_answer_than_a_turn_is_a_failure(place: Place) -> None:
    class Strange(Instant):
        async def admit_turn(self, invocation: RunInvocation, session_id: str) -> AdmittedTurn:
            await super().admit_turn(invocation, session_id)
            return None  # type: ignore[return-value]

    handler = Strange()
    async with place.running(handler, MAX_ATTEMPTS="2") as provider:
        run = await provider.enqueue("d", {}, trigger="manual")
        done = await place.until_phase(run.run_id, "Failed")
    assert (len(handler.started), len(handler.admitted)) == (1, 2)
    assert done.status.session_id == f"session-of-{run.run_id}"


async def test_handler_that_takes_too_long_is_cancelled_and_retried(place: Place) -> None:
    handler = Held("start_session")
    async with place.running(handler, HANDLER_TIMEOUT_SECONDS="0.1", MAX_ATTEMPTS="2") as provider:
        run = await provider.enqueue("d", {}, trigger="manual")
        done = await place.until_phase(run.run_id, "Failed")
    assert len(handler.cancelled) == 2
    assert done.status.last_error == "start_session did not answer within 0.1 seconds"


async def test_fenced_provider_calls_nobody(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """RE-07: without its Lease a provider starts no call, by its own clock; with it again, it goes on."""
    handler = Instant()
    async with place.running(handler) as provider:
        keeper = provider._engine()._life.keeper  # type: ignore[union-attr]
        monkeypatch.setattr(keeper, "held", lambda: False)
        run = await provider.enqueue("d", {}, trigger="manual")
        await asyncio.sleep(3 * QUICK.sweep)
        assert handler.started == []
        monkeypatch.undo()
        await place.until_phase(run.run_id, "Succeeded")


async def test_clock_far_ahead_takes_nothing_from_the_living(place: Place) -> None:
    """RE-07: another one's clock is 45 s ahead; it judges by what it sees change, and takes nothing."""
    slow, other = Held("start_session"), Instant()
    async with place.running(slow) as provider:
        run = await provider.enqueue("d", {}, trigger="manual")
        await until(lambda: true(slow.started))
        place.clock.advance(45)
        async with place.running(other):
            await asyncio.sleep(2 * QUICK.lease_duration)
            assert other.started == []
            slow.go.set()
            await place.until_phase(run.run_id, "Succeeded")
    assert slow.started == [run.run_id]


async def test_due_runs_nobody_was_there_for_are_cancelled(place: Place) -> None:
    """RT-07: due after every process had gone: it is ended as missed, not started hours late."""
    handler = Instant()
    async with place.running(Instant()) as provider:
        await provider.apply(rule())
    now = place.clock.now()
    name = await place.create_run(due=minute(now) - timedelta(minutes=2), confirmed=now)
    async with place.running(handler):
        done = await place.until_phase(name, "Cancelled")
    assert handler.started == []
    assert (
        done.status.last_error == "No AstraBox process was running at this due time, so it counts as missed."
    )


async def test_killed_process_is_taken_over_without_a_saved_session(place: Place) -> None:
    """RE-11, RE-01: the second life repeats start_session under the same run id."""
    lost, heir = Held("start_session"), Instant()
    first = place.provider()
    await first.start(lost)
    run = await first.enqueue("d", {"n": 1.0}, trigger="manual")
    await until(lambda: true(lost.started))
    await kill(first)
    async with place.running(heir):
        done = await place.until_phase(run.run_id, "Succeeded", within=20)
    assert heir.started == [run.run_id]
    assert (done.status.attempts, done.status.releases) == (2, 0)


async def test_killed_process_is_taken_over_with_its_saved_session(place: Place) -> None:
    """RE-11: with the Session saved, step one is not called again."""
    lost, heir = Held("admit_turn"), Instant()
    first = place.provider()
    await first.start(lost)
    run = await first.enqueue("d", {}, trigger="manual")
    await until(lambda: true(lost.admitted))
    await kill(first)
    async with place.running(heir):
        done = await place.until_phase(run.run_id, "Succeeded", within=20)
    assert heir.started == []
    assert heir.admitted == [(run.run_id, f"session-of-{run.run_id}")]
    assert done.status.attempts == 2


async def test_run_that_kills_its_process_ends_failed(place: Place) -> None:
    """An attempt is counted before its call: a run that takes its process down uses its attempts up."""
    for _ in range(2):
        handler = Held("start_session")
        provider = place.provider(MAX_ATTEMPTS="2")
        await provider.start(handler)
        if not await place.api.runs.list_for_deployment("d"):
            name = (await provider.enqueue("d", {}, trigger="manual")).run_id
        async with asyncio.timeout(20):
            await until(lambda: true(handler.started), within=20)  # noqa: B023
        await kill(provider)
    async with place.running(Instant(), MAX_ATTEMPTS="2"):
        done = await place.until_phase(name, "Failed", within=20)
    assert done.status.last_error == "the process that ran it was lost in every attempt"


async def test_process_cut_off_for_a_while_writes_nothing_over_its_heir(place: Place) -> None:
    """RE-03: A is away for longer than its Lease; B takes over; A's late result meets another version."""
    away, heir = Held("start_session"), Instant()
    async with place.running(away) as first:
        run = await first.enqueue("d", {}, trigger="manual")
        await until(lambda: true(away.started))
        place.door.shut()
        direct = place.environ["ASTRABOX_SCHEDULER_KUBERNETES_KUBECONFIG"]
        place.environ["ASTRABOX_SCHEDULER_KUBERNETES_KUBECONFIG"] = str(place.direct)
        try:
            async with place.running(heir):
                done = await place.until_phase(run.run_id, "Succeeded", within=20)
                place.door.open()
                away.go.set()
                await asyncio.sleep(0.5)
        finally:
            place.environ["ASTRABOX_SCHEDULER_KUBERNETES_KUBECONFIG"] = direct
    assert heir.started == [run.run_id]
    assert away.admitted == [], "a fenced process has made a call"
    assert (await place.api.runs.get(run.run_id)).status == done.status


async def test_outage_of_the_store_loses_no_run(place: Place) -> None:
    """RE-01: the store is away for longer than a Lease lives; afterwards all runs end, each under its id."""
    handler = Held("start_session")
    async with place.running(handler) as provider:
        runs = [await provider.enqueue("d", {}, trigger="manual") for _ in range(10)]
        await until(lambda: true(len(handler.started) == 10))
        async with place.door.closed():
            handler.go.set()
            await asyncio.sleep(QUICK.lease_duration + 1)
        for run in runs:
            await place.until_phase(run.run_id, "Succeeded", within=20)
