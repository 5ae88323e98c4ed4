"""Dispatch on a real API server: what is written when, and what AstraBox may answer."""

import asyncio

import pytest

from astrabox.seams.scheduler import (
    AdmittedTurn,
    RunInvocation,
    RunPermanentError,
    ScheduleCapacityExceeded,
)
from astrabox_scheduler_client.errors import Conflict
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL, DEPLOYMENT_LABEL
from astrabox_scheduler_crds.run import RunInvocation as StoredRun
from astrabox_scheduler_crds.transitions import status_patch, with_attempt
from astrabox_scheduler_kubernetes.intake import Term
from astrabox_scheduler_kubernetes.rules import payload_text
from tests.apiserver.provider.handlers import Held, Instant, rule
from tests.apiserver.provider.scenery import Place, descriptors, lease_of, true, until


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


async def test_deleted_schedule_goes_at_once_and_its_history_stays(place: Place) -> None:
    """RT-06, AL-11: runs have no owner; a deleted schedule fires no more at once and its history stays."""
    async with place.running(Instant()) as provider:
        await provider.apply(rule())
        run = await provider.enqueue("d", {}, trigger="manual")
        await place.until_phase(run.run_id, "Succeeded")
        schedule = await place.api.schedules.get("d")
        await provider.delete("d")
        assert await place.api.schedules.version("d") is None
        assert [each.run_id for each in await provider.list_runs("d")] == [run.run_id]
    assert schedule.metadata.uid is not None


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


@pytest.mark.parametrize("character", ['"', "\\", "\n", "<", "&", "\u0001", "\u2028"])
async def test_the_largest_payload_of_every_kind_leaves_room_for_the_end_of_its_run(
    place: Place, character: str
) -> None:
    """G3: a store that takes the run and refuses what it becomes would let it hang for ever."""
    most, least = 1_000_000, 0
    while most - least > 1:
        size = (most + least) // 2
        try:
            payload_text({"prompt": character * size})
        except ScheduleCapacityExceeded:
            most = size
        else:
            least = size
    error = "ż" * 10_000
    handler = Instant()

    async def fails(invocation: RunInvocation) -> str:
        raise RuntimeError(error)

    handler.start_session = fails  # type: ignore[method-assign]
    async with place.running(handler, MAX_ATTEMPTS="2") as provider:
        run = await provider.enqueue("d", {"prompt": character * least}, trigger="manual")
        ended = await place.until_phase(run.run_id, "Failed")
    assert (ended.status.last_error or "").startswith("RuntimeError: ż")


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


async def test_what_a_slow_watch_tells_of_a_run_that_has_ended_costs_nothing(place: Place) -> None:
    """An event of its past arrives after its end: it is not begun once more, in vain."""
    handler = Instant()
    async with place.running(handler) as provider:
        dispatcher = provider._engine()._life.dispatcher  # type: ignore[union-attr]
        told: list[tuple[StoredRun, Term]] = []
        dispatcher._intake._take = lambda run, term: told.append((run, term))
        name = await place.create_run(assignee=lease_of(provider))
        await until(lambda: true(told))
        calls = place.recorded(provider)
        dispatcher.take(*told[0])
        await place.until_phase(name, "Succeeded")
        await until(lambda: true(not dispatcher.holds(name)))
        seen = len(calls)
        dispatcher.take(*told[0])
        assert not dispatcher.holds(name)
    assert [call for call in calls[seen:] if name in call] == []
    assert handler.started == [name]
