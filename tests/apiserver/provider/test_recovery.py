"""Lost processes, lost Leases and lost connections on a real API server: every run goes on, once."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL
from tests.apiserver.provider.handlers import Held, Instant, rule
from tests.apiserver.provider.scenery import QUICK, Place, kill, lease_of, minute, true, until


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


async def test_what_was_lost_in_a_gap_of_the_watch_is_noticed(place: Place) -> None:
    """RE-06: no event tells of it, and a list that is taken after the gap does not have it."""
    handler = Held("start_session")
    async with place.running(handler, CONCURRENCY="3") as provider:
        dispatcher = provider._engine()._life.dispatcher  # type: ignore[union-attr]
        dispatcher._intake._gone = lambda _: None
        given, deleted, kept = [(await provider.enqueue("d", {}, trigger="manual")).run_id for _ in range(3)]
        await until(lambda: true(len(handler.started) == 3))
        await place.api.runs.patch_labels(given, {ASSIGNEE_LABEL: "somebody-else"})
        await place.api.runs.delete(deleted)
        await until(lambda: true(len(handler.cancelled) == 2))
        await asyncio.sleep(2 * QUICK.sweep)
        assert set(handler.cancelled) == {given, deleted}
        handler.go.set()
        await place.until_phase(kept, "Succeeded")


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


async def test_leases_are_looked_at_between_two_sweeps(place: Place) -> None:
    """Who has gone is noticed within seconds, not when runs are looked through the next time."""
    timing = replace(QUICK, sweep=600.0, lease_duration=60.0, lease_period=5.0)
    async with place.running(Instant(), timing) as provider:
        calls = place.recorded(provider)
        await until(lambda: true(calls.count("GET leases") >= 5))


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


async def test_due_runs_nobody_was_there_for_are_not_started(place: Place) -> None:
    """RT-07: due after every process had gone, and taken over by none before one shows that it was there."""
    handler = Instant()
    async with place.running(Instant()) as provider:
        await provider.apply(rule())
    now = place.clock.now()
    due = minute(now) - timedelta(minutes=2)
    name = await place.create_run(due=due, confirmed=now)
    async with place.running(handler) as provider:
        calls = place.recorded(provider)
        other = await provider.enqueue("d", {}, trigger="manual")
        await place.until_phase(other.run_id, "Succeeded")
        # Its own runs, and three sweeps: the first of them has ended when the second begins.
        await until(lambda: true(calls.count("GET runinvocations") > 3))
        calls.clear()
        await until(lambda: true(calls.count("GET runinvocations") > 1))
        assert not [call for call in calls if name in call], "read once, not by every sweep"
        assert handler.started == [other.run_id]
        await place.attended(due)
        await place.until_phase(name, "Succeeded")
    assert handler.started == [other.run_id, name]


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


async def lose(place: Place, runs: int, lives: int, **environ: str) -> None:
    """So many runs in a call when their process is lost, so many times."""
    for life in range(lives):
        handler = Held("start_session")
        provider = place.provider(**environ)
        await provider.start(handler)
        for _ in range(0 if life else runs):
            await provider.enqueue("d", {}, trigger="manual")
        await until(lambda h=handler: true(len(h.started) == runs), within=20)  # type: ignore[misc]
        await kill(provider)


@pytest.mark.parametrize(("lives", "attempts"), [(1, "2"), (2, "5")])
async def test_runs_of_a_lost_process_are_continued_together(place: Place, lives: int, attempts: str) -> None:
    """G4: none waits for the call of another, with the fewest attempts that leave room for that."""
    await lose(place, 30, lives, MAX_ATTEMPTS=attempts)
    heir = Held("start_session")
    async with place.running(heir, MAX_ATTEMPTS=attempts):
        await until(lambda: true(len(heir.started) == 30), within=QUICK.lease_duration + 5)
        heir.go.set()
        for name in heir.started:
            done = await place.until_phase(name, "Succeeded")
            assert (done.status.attempts, done.status.losses) == (lives + 1, lives + 1)


async def test_suspects_are_soon_under_way_again(place: Place) -> None:
    """Each is alone on trial, but only until it is answered; and no more are in progress than may be."""
    await lose(place, 12, 2, MAX_ATTEMPTS="4")
    heir = Held("admit_turn")
    async with place.running(heir, MAX_ATTEMPTS="4", CONCURRENCY="5"):
        await until(lambda: true(len(heir.admitted) == 5), within=QUICK.lease_duration + 5)
        await asyncio.sleep(10 * QUICK.beat)
        assert (len(heir.started), len(heir.admitted)) == (5, 5)
        heir.go.set()
        for run in await place.api.runs.list_for_deployment("d"):
            await place.until_phase(run.metadata.name, "Succeeded")


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
    assert done.status.last_error == "the process that ran it was lost in 2 of 2 attempts"


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
