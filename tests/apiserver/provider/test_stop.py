"""stop: bounded whatever hangs, and nothing is lost or counted against a run."""

import asyncio
import gc
import time
from dataclasses import replace

import pytest

from astrabox.seams.scheduler import AdmittedTurn, RunInvocation
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL
from astrabox_scheduler_crds.run import Phase
from astrabox_scheduler_crds.run import RunInvocation as StoredRun
from astrabox_scheduler_kubernetes.recorder import Change
from tests.apiserver.provider.handlers import Held, Instant, rule
from tests.apiserver.provider.scenery import QUICK, Place, lease_of, minute, true, until


async def test_ten_stops_use_up_no_attempt(place: Place) -> None:
    """A run that is in its call at ten rolling updates has all its retries left."""
    name = await place.create_run()
    for life in range(10):
        handler = Held("start_session")
        async with place.running(handler, STOP_TIMEOUT_SECONDS="0", MAX_ATTEMPTS="2"):
            await until(lambda h=handler: true(h.started))  # type: ignore[misc]
        run = await place.api.runs.get(name)
        assert (run.status.attempts, run.status.releases) == (life + 1, life + 1)
        assert ASSIGNEE_LABEL not in run.metadata.labels
    async with place.running(Instant(), MAX_ATTEMPTS="2"):
        await place.until_phase(name, "Succeeded")


async def test_what_is_in_progress_may_end(place: Place) -> None:
    """The call of a stopping provider ends and is saved; the next call is made by another."""
    handler, heir = Held("start_session"), Instant()
    provider = place.provider(STOP_TIMEOUT_SECONDS="5")
    await provider.start(handler)
    run = await provider.enqueue("d", {}, trigger="manual")
    await until(lambda: true(handler.started))
    stopping = asyncio.create_task(provider.stop())
    await asyncio.sleep(0)
    handler.go.set()
    await stopping
    assert handler.admitted == [], "a call was begun after stop"
    stored = await place.api.runs.get(run.run_id)
    assert stored.status.session_id == f"session-of-{run.run_id}"
    async with place.running(heir):
        await place.until_phase(run.run_id, "Succeeded")
    assert heir.started == []


async def test_waiting_runs_are_handed_over(place: Place) -> None:
    """Runs that had no turn lose their label, so that they need no Lease to run out."""
    handler = Held("start_session")
    async with place.running(handler, CONCURRENCY="1", STOP_TIMEOUT_SECONDS="0") as provider:
        for _ in range(20):
            await provider.enqueue("d", {}, trigger="manual")
        await until(lambda: true(handler.started))
        await until(lambda: true(len(provider._engine()._life.dispatcher._waiting) == 19))  # type: ignore[union-attr]
    runs = await place.api.runs.list_for_deployment("d")
    assert [run for run in runs if ASSIGNEE_LABEL in run.metadata.labels] == []
    assert sum(run.status.attempts for run in runs) == 1
    assert len(handler.started) == 1


async def test_a_rolling_update_holds_up_no_run(place: Place) -> None:
    """What has had no turn, or is still assigned to a process that stops, goes on elsewhere meanwhile."""
    handler, heir = Held("start_session"), Instant()
    provider = place.provider(CONCURRENCY="1", STOP_TIMEOUT_SECONDS="20")
    await provider.start(handler)
    first = await provider.enqueue("d", {}, trigger="manual")
    await until(lambda: true(handler.started))
    second = await provider.enqueue("d", {}, trigger="manual")
    async with place.running(heir):
        stopping = asyncio.create_task(provider.stop())
        await place.until_phase(second.run_id, "Succeeded")
        assert (await place.api.leases.get(lease_of(provider))).draining
        late = await place.create_run(assignee=lease_of(provider))
        await place.until_phase(late, "Succeeded")
        assert not stopping.done()
        assert (handler.started, set(heir.started)) == ([first.run_id], {second.run_id, late})
        handler.go.set()
        await stopping
        await place.until_phase(first.run_id, "Succeeded")
    assert heir.started.count(first.run_id) == 0


async def test_what_waits_is_handed_over_once_the_store_is_back(place: Place) -> None:
    """Not only when the process ends: the stop of others' pods may take minutes."""
    handler = Held("start_session")
    provider = place.provider(CONCURRENCY="1", STOP_TIMEOUT_SECONDS="20")
    await provider.start(handler)
    await provider.enqueue("d", {}, trigger="manual")
    await until(lambda: true(handler.started))
    waits = await provider.enqueue("d", {}, trigger="manual")
    async with place.door.closed():
        stopping = asyncio.create_task(provider.stop())
        await asyncio.sleep(0.3)

    async def handed_over() -> bool:
        return ASSIGNEE_LABEL not in (await place.api.runs.get(waits.run_id)).metadata.labels

    await until(handed_over, within=10)
    assert not stopping.done()
    handler.go.set()
    await stopping


class OneLong(Instant):
    """A handler whose first call lasts until `go`, and every other one until `others`."""

    def __init__(self) -> None:
        super().__init__()
        self.go, self.others = asyncio.Event(), asyncio.Event()

    async def start_session(self, invocation: RunInvocation) -> str:
        session = await super().start_session(invocation)
        await (self.go if self.started[0] == invocation.run_id else self.others).wait()
        return session


async def test_run_whose_call_ends_is_handed_over_at_once(place: Place) -> None:
    """Its next call is made elsewhere, though a longer call keeps the stop from ending."""
    handler, heir = OneLong(), Instant()
    provider = place.provider(STOP_TIMEOUT_SECONDS="30")
    await provider.start(handler)
    names = [(await provider.enqueue("d", {}, trigger="manual")).run_id for _ in range(6)]
    await until(lambda: true(len(handler.started) == 6))
    async with place.running(heir):
        stopping = asyncio.create_task(provider.stop())
        await until(lambda: _draining(place, lease_of(provider)))
        handler.others.set()
        for name in set(names) - {handler.started[0]}:
            run = await place.until_phase(name, "Succeeded")
            assert (run.status.attempts, run.status.releases) == (2, 1)
        assert not stopping.done()
        handler.go.set()
        await stopping
        await place.until_phase(handler.started[0], "Succeeded")
    assert (heir.started, len(heir.admitted)) == ([], 6)


async def test_suspects_that_wait_are_handed_over_at_once(place: Place) -> None:
    """They have not begun, so others may, though the one on trial keeps the stop from ending."""
    handler, heir = Held("start_session"), Instant()
    status = {"phase": "Running", "attempts": 3, "startedAt": "2026-06-01T12:00:00Z"}
    names = {await place.create_run() for _ in range(6)}
    for name in names:
        await place.api.runs.patch_status(name, status, None)
    provider = place.provider(STOP_TIMEOUT_SECONDS="30")
    await provider.start(handler)
    suspects = provider._engine()._life.dispatcher._desk.suspects  # type: ignore[union-attr]
    await until(lambda: true(handler.started and suspects.waiting == 5))
    async with place.running(heir):
        stopping = asyncio.create_task(provider.stop())
        for name in names - set(handler.started):
            await place.until_phase(name, "Succeeded")
        assert not stopping.done()
        handler.go.set()
        await stopping
        await place.until_phase(handler.started[0], "Succeeded")
    assert len(handler.started) == 1
    assert set(heir.started) == names - set(handler.started)


@pytest.mark.parametrize("places", [2, 1], ids=["in-progress", "waiting"])
async def test_run_is_handed_over_once_it_is_decided_that_it_is_saved(place: Place, places: int) -> None:
    """G6: not before, since another would start what AstraBox is then told was not saved."""
    handler, heir = Held("start_session"), Instant()
    provider = place.provider(STOP_TIMEOUT_SECONDS="30", CONCURRENCY=str(places))
    await provider.start(handler)
    long = await provider.enqueue("d", {}, trigger="manual")
    await until(lambda: true(handler.started))
    dispatcher = provider._engine()._life.dispatcher  # type: ignore[union-attr]
    name = "asked-for"
    undecided = provider._engine()._requests.unsaved.undecided(name)
    undecided.__enter__()
    await place.create_run(name=name, assignee=lease_of(provider))
    await until(lambda: true(name in (dispatcher._in_progress if places == 2 else dispatcher._waiting)))
    async with place.running(heir):
        stopping = asyncio.create_task(provider.stop())
        await until(lambda: _draining(place, lease_of(provider)))
        await asyncio.sleep(2 * QUICK.sweep)
        assert (await place.api.runs.get(name)).metadata.labels[ASSIGNEE_LABEL] == lease_of(provider)
        undecided.__exit__(None, None, None)
        await place.until_phase(name, "Succeeded")
        assert not stopping.done()
        handler.go.set()
        await stopping
    assert (handler.started, heir.started) == ([long.run_id], [name])


async def test_a_stop_that_is_cancelled_leaves_no_call_behind(place: Place) -> None:
    """The Lease is released, so others begin what is in progress here: it must have ended by then."""
    handler = Held("start_session")
    provider = place.provider(STOP_TIMEOUT_SECONDS="30")
    await provider.start(handler)
    run = await provider.enqueue("d", {}, trigger="manual")
    await until(lambda: true(handler.started))
    keeper = provider._engine()._life.keeper  # type: ignore[union-attr]
    release, cancelled = keeper.release, []

    async def release_and_look(timeout: float) -> None:  # noqa: ASYNC109 - as the keeper has it
        await release(timeout)
        cancelled.extend(handler.cancelled)

    keeper.release = release_and_look  # type: ignore[method-assign]
    stopping = asyncio.create_task(provider.stop())
    await until(lambda: _draining(place, keeper.name))
    stopping.cancel()
    await asyncio.gather(stopping, return_exceptions=True)
    assert cancelled == [run.run_id]
    assert (await place.api.leases.get(keeper.name)).spec.holder_identity is None


async def _draining(place: Place, lease: str) -> bool:
    return (await place.api.leases.get(lease)).draining


async def test_run_handed_over_before_its_first_call_is_looked_at_again(place: Place) -> None:
    """G5: claimed in the moment of the stop, never called: a disable before its start still counts."""
    handler, heir = Held("start_session"), Instant()
    await place.attended(minute(place.clock.now()))
    async with place.running(handler) as provider:
        await provider.apply(rule())
        engine = provider._engine()
        life = engine._life
        assert life is not None
        save = life.dispatcher._desk.recorder.save

        async def save_and_stop(run: StoredRun, change: Change) -> StoredRun:
            saved = await save(run, change)
            life.stopping = True
            return saved

        life.dispatcher._desk.recorder.save = save_and_stop  # type: ignore[method-assign]
        now = place.clock.now()
        name = await place.create_run(due=minute(now), confirmed=now, assignee=lease_of(provider))
        await until(lambda: _attempted(place, name))
    assert handler.started == []
    released = await place.api.runs.get(name)
    assert (released.status.phase, released.status.started) == (Phase.RETRYING, False)
    async with place.running(heir) as provider:
        await provider.apply(rule(enabled=False))
        place.clock.advance(4)
        await place.until_phase(name, "Cancelled")
    assert heir.started == []


async def _attempted(place: Place, name: str) -> bool:
    return (await place.api.runs.get(name)).status.attempts > 0


async def test_handler_that_ignores_its_cancellation_holds_up_nothing(place: Place) -> None:
    """stop returns in its bound though a call does not end even when it is cancelled."""
    let_go = asyncio.Event()

    class Stubborn(Instant):
        async def start_session(self, invocation: RunInvocation) -> str:
            session = await super().start_session(invocation)
            while not let_go.is_set():
                try:
                    await let_go.wait()
                except asyncio.CancelledError:
                    continue
            return session

    handler = Stubborn()
    provider = place.provider(STOP_TIMEOUT_SECONDS="0.3")
    await provider.start(handler)
    run = await provider.enqueue("d", {}, trigger="manual")
    await until(lambda: true(handler.started))
    begun = time.monotonic()
    await provider.stop()
    assert time.monotonic() - begun < 0.3 + QUICK.stop_margin
    assert ASSIGNEE_LABEL not in (await place.api.runs.get(run.run_id)).metadata.labels
    tasks = [task for task in asyncio.all_tasks() if task.get_name() == f"astrabox run {run.run_id}"]
    let_go.set()
    await asyncio.wait(tasks, timeout=5)
    assert handler.admitted == [], "a call was made after stop had returned"


# asyncio leaves a transport whose TLS handshake was cancelled to the garbage collector, which warns.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("collected")  # here, not in some later test
async def test_stop_is_bounded_while_the_store_is_away(place: Place) -> None:
    """Refused or swallowed: what cannot be written is left to the Lease's end."""
    for shut in (True, False):
        handler = Held("start_session")
        provider = place.provider(STOP_TIMEOUT_SECONDS="0.3")
        await provider.start(handler)
        await provider.enqueue("d", {}, trigger="manual")
        await until(lambda h=handler: true(h.started))  # type: ignore[misc]
        begun = time.monotonic()
        if shut:
            async with place.door.closed():
                await provider.stop()
        else:
            with place.door.silent():
                await provider.stop()
        assert time.monotonic() - begun < 0.3 + QUICK.stop_margin + 1
        # TLS says goodbye for up to 30 s on a connection that does not answer; the test's loop ends before.
        place.door.cut()
        await asyncio.sleep(0.1)
    gc.collect()


async def test_a_run_that_waits_for_its_retry_is_handed_over(place: Place) -> None:
    """Its time of the next attempt is kept over the handover."""

    class Busy(Instant):
        async def admit_turn(self, invocation: RunInvocation, session_id: str) -> AdmittedTurn:
            await super().admit_turn(invocation, session_id)
            raise OSError("busy")

    handler, heir = Busy(), Instant()
    fields = {"RETRY_FIRST_DELAY_SECONDS": "1.5", "RETRY_MAX_DELAY_SECONDS": "1.5"}
    async with place.running(handler, replace(QUICK), **fields) as provider:
        run = await provider.enqueue("d", {}, trigger="manual")
        before = await place.until_phase(run.run_id, "Retrying")
    assert before.status.next_attempt_time is not None
    async with place.running(heir, **fields):
        await place.until_phase(run.run_id, "Succeeded")
    assert place.clock.now() >= before.status.next_attempt_time
    assert (heir.started, len(heir.admitted)) == ([], 1)
