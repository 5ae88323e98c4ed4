"""G5 on a real API server: what a disable still stops, and what goes on."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from astrabox_scheduler_client.errors import Unreachable
from astrabox_scheduler_crds.run import Phase
from astrabox_scheduler_crds.run import RunInvocation as StoredRun
from astrabox_scheduler_kubernetes.recorder import Change
from tests.apiserver.provider.handlers import Held, Instant, rule
from tests.apiserver.provider.scenery import QUICK, Place, kill, lease_of, minute, true, until

Ask = Callable[[str], Awaitable[object]]


async def test_claim_that_could_not_be_confirmed_is_not_started_by_the_next(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G5: claimed late, the schedule out of sight, the Lease lost: whoever has it next looks again first."""
    first, heir = Instant(), Instant()
    await place.attended(minute(place.clock.now()))
    async with place.running(first) as provider:
        await provider.apply(rule())
        life = provider._engine()._life
        assert life is not None
        desk, keeper = life.dispatcher._desk, life.keeper
        save = desk.recorder.save

        async def save_late(run: StoredRun, change: Change) -> StoredRun:
            saved = await save(run, change)
            place.clock.advance(5)
            monkeypatch.setattr(keeper, "held", lambda: False)
            return saved

        async def out_of_sight(schedule: str) -> datetime | None:
            raise Unreachable("away")

        monkeypatch.setattr(desk.recorder, "save", save_late)
        monkeypatch.setattr(desk.confirming, "enabled", out_of_sight)
        now = place.clock.now()
        name = await place.create_run(due=minute(now), confirmed=now, assignee=lease_of(provider))
        freed = await place.until_phase(name, "Retrying")
        assert (freed.status.attempts, freed.status.releases, freed.status.started) == (1, 1, False)
        await kill(provider)
    async with place.running(heir) as provider:
        await provider.apply(rule(enabled=False))
        await place.until_phase(name, "Cancelled", within=20)
    assert (first.started, heir.started) == ([], [])


def slowly(ask: Ask) -> Ask:
    async def answer(name: str) -> object:
        await asyncio.sleep(2.4)
        return await ask(name)

    return answer


async def test_an_answer_that_is_too_late_for_a_create_is_good_for_a_start(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """G1: a start may rest on a look that began 3.5 s before; with answers of 2.4 s none is quicker."""
    handler = Instant()
    await place.attended(minute(place.clock.now()))
    async with place.running(handler) as provider:
        await provider.apply(rule())
        life = provider._engine()._life
        assert life is not None
        schedules = life.dispatcher._desk.confirming._confirm._schedules  # type: ignore[attr-defined]
        monkeypatch.setattr(schedules, "version", slowly(schedules.version))
        monkeypatch.setattr(schedules, "stored_version", slowly(schedules.stored_version))
        now = place.clock.now()
        late = now - timedelta(seconds=10)
        name = await place.create_run(due=minute(now), confirmed=late, assignee=lease_of(provider))
        await place.until_phase(name, "Succeeded", within=15)
    assert handler.started == [name]


async def test_due_run_in_the_tail_of_a_killed_process_waits_for_a_proof(place: Place) -> None:
    """G1: assigned to us, due before we were there, when a process that was killed only looked alive.

    If it was not killed but cut off, its Lease says so later.
    """
    handler = Instant()
    killed = place.provider(replace(QUICK, lease_duration=3.0))
    await killed.start(Instant())
    await killed.apply(rule())
    lease = lease_of(killed)
    await kill(killed)
    renewed = (await place.api.leases.get(lease)).spec.renew_time
    assert renewed is not None
    due = minute(renewed) + timedelta(minutes=1)
    place.clock.advance_to(due + timedelta(seconds=1))
    async with place.running(handler) as provider:
        name = await place.create_run(due=due, confirmed=place.clock.now(), assignee=lease_of(provider))
        other = await provider.enqueue("d", {}, trigger="manual")
        await place.until_phase(other.run_id, "Succeeded")
        assert handler.started == [other.run_id]
        found = await place.api.leases.get(lease)
        await place.api.leases.replace(found.changed(spec=found.spec.changed(renew_time=due)))
        await place.until_phase(name, "Succeeded")
    assert handler.started == [other.run_id, name]


async def test_scheduled_run_of_a_disabled_schedule_is_not_started(place: Place) -> None:
    """PA-04: the run was created in the moment of the disable; it is looked at again before its start."""
    now = place.clock.now()
    handler = Instant()
    await place.attended(minute(now))
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
    await place.attended(minute(place.clock.now()))
    async with place.running(handler) as provider:
        now = place.clock.now()
        name = await place.create_run(due=minute(now), confirmed=now, assignee=lease_of(provider))
        await place.until_phase(name, "Succeeded")
    assert handler.started == [name]


async def test_disable_cancels_what_waits_and_leaves_what_has_started(place: Place) -> None:
    """G5: of two due runs with one place, the started one goes on, the waiting one is cancelled."""
    now = place.clock.now()
    handler = Held("start_session")
    await place.attended(minute(now) - timedelta(minutes=1))
    await place.attended(minute(now))
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
