"""What counts as missed: due times that have their run do not, whoever fired them."""

import asyncio
from datetime import datetime, timedelta

import pytest

from astrabox_scheduler_client.errors import Unreachable
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import requested_run_name, scheduled_run_name
from astrabox_scheduler_crds.run import RunInvocation
from tests.unit.operator.world import Operator, World, at

AWAY = Unreachable("away", reason="Cut")


async def half_an_hour_that_no_status_tells(world: World, *names: str, keep: int = 0) -> Operator:
    """12:01 to 12:30 fire, and no status gets through; the heir that starts at `now`.

    `keep`: retention leaves so many runs of each.
    """
    first = world.operator("op-1")
    for name in names:
        world.schedules.put(name)
    first.see()
    await first.minutes("12:01", "12:30")
    for name in names:
        for fired in world.due_names(name)[: -keep if keep else 0]:
            del world.runs.stored[scheduled_run_name(name, at(fired))]
    world.operators.clear()
    return world.operator("op-2")


async def starts(operator: Operator, now: datetime) -> None:
    operator.world.now = now
    operator.see()
    await operator.at(now)
    await operator.at(now + timedelta(seconds=5))
    await operator.write_status()
    await operator.reporter.flush()


def skipped(world: World, name: str = "a") -> tuple[int, datetime | None] | None:
    """How many its status tells as skipped, and the last of them."""
    told = world.schedules.stored[name].status.skipped
    return None if told is None else (told.count, told.last_due_time)


async def test_what_has_its_run_was_not_missed(world: World) -> None:
    """OB-05: statuses were refused for longer than the window; nobody is alarmed for nothing."""
    heir = await half_an_hour_that_no_status_tells(world, "a")
    await starts(heir, at("12:30:45"))
    status = world.schedules.stored["a"].status
    assert (status.skipped, status.last_run) == (None, "a-20260601t1230z")
    assert heir.events.written == []
    assert heir.sample("skipped_total", reason="OutsideCatchUpWindow") == 0
    assert world.due_names("a") == [f"12:{minute:02}" for minute in range(1, 31)]


async def test_only_what_has_no_run_was_missed(world: World) -> None:
    """OB-05: the lone operator was killed after 12:30, and its heir comes an hour later."""
    heir = await half_an_hour_that_no_status_tells(world, "a")
    await starts(heir, at("13:30:30"))
    assert skipped(world) == (50, at("13:20"))
    assert heir.sample("skipped_total", reason="OutsideCatchUpWindow") == 50
    ((_, reason, note),) = heir.events.written
    assert reason == "DueTimesSkipped"
    assert note.startswith("50 due times"), note
    assert "12:31" in note
    assert "13:20" in note


async def test_the_latest_run_that_is_found_is_told_when_nothing_fires(world: World) -> None:
    """OB-05: its last run is shown, not the one before the statuses were refused."""
    heir = await half_an_hour_that_no_status_tells(world, "a")
    world.leases.clear()
    world.live.clear()
    await starts(heir, at("13:30:30"))
    status = world.schedules.stored["a"].status
    assert (status.last_due_time, status.last_run) == (at("12:30"), "a-20260601t1230z")


async def test_what_retention_took_was_not_missed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many runs are there as are kept, so earlier ones may have been there."""
    monkeypatch.setattr("tests.unit.operator.world.DEFAULT_KEEP", 5)
    heir = await half_an_hour_that_no_status_tells(world, "a", keep=5)
    await starts(heir, at("12:45:30"))
    assert skipped(world) == (5, at("12:35"))


async def test_what_retention_took_was_not_missed_where_all_that_is_left_is_younger(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one run that is kept may still fire late, so it is not of what was passed over."""
    monkeypatch.setattr("tests.unit.operator.world.DEFAULT_KEEP", 1)
    heir = await half_an_hour_that_no_status_tells(world, "a", keep=1)
    world.schedules.put("a", cron="*/10 * * * *")
    await starts(heir, at("12:35:30"))
    assert skipped(world) is None
    assert heir.events.written == []


async def test_what_was_missed_is_told_whatever_a_full_history_says_of_its_age(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OB-05: runs of a restored backup are as young as the restore, and the catch-up adds to them."""
    monkeypatch.setattr("tests.unit.operator.world.DEFAULT_KEEP", 5)
    heir = await half_an_hour_that_no_status_tells(world, "a", keep=5)
    await world.schedules.patch_status("a", {"lastDueTime": "2026-06-01T12:30:00Z"})
    for run in tuple(world.runs.stored.values()):
        world.runs.put(run.changed(metadata=run.metadata.changed(creation_timestamp=at("13:25"))))
    await starts(heir, at("13:30:30"))
    assert skipped(world) == (50, at("13:20"))


async def test_runs_by_hand_push_scheduled_ones_out_of_the_history(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.unit.operator.world.DEFAULT_KEEP", 2)
    heir = await half_an_hour_that_no_status_tells(world, "a", keep=1)
    (run,) = world.runs.stored.values()
    world.runs.stored.clear()
    for created in (at("12:33"), at("12:34")):
        name = requested_run_name("a", created, "abcdefgh")
        labels = run.metadata.labels
        metadata = ObjectMeta(name=name, creation_timestamp=created, labels=labels)
        world.runs.put(run.changed(metadata=metadata, spec=run.spec.changed(trigger="manual", due_time=None)))
    await starts(heir, at("12:45:30"))
    assert skipped(world) == (2, at("12:35"))


async def test_what_is_missing_between_runs_was_missed(world: World) -> None:
    """OB-05: fewer runs are there than are kept, so nothing was taken."""
    heir = await half_an_hour_that_no_status_tells(world, "a")
    for fired in ("12:03", "12:07"):
        del world.runs.stored[scheduled_run_name("a", at(fired))]
    await starts(heir, at("12:40:30"))
    assert skipped(world) == (2, at("12:07"))


async def test_of_many_schedules_all_runs_are_listed_once(world: World) -> None:
    names = [f"s{number}" for number in range(21)]
    heir = await half_an_hour_that_no_status_tells(world, *names)
    world.runs.lists = 0
    await starts(heir, at("12:50:30"))
    assert world.runs.lists == 1
    assert {skipped(world, name) for name in world.schedules.stored} == {(10, at("12:40"))}


async def test_runs_that_cannot_be_listed_are_waited_for(world: World) -> None:
    """OB-05: nothing is told for which there is no proof, and nothing is forgotten."""
    heir = await half_an_hour_that_no_status_tells(world, "a", "b")
    world.now = at("12:50:30")
    heir.see()
    world.runs.unlisted = AWAY
    for _ in range(3):
        await heir.firing.drain(world.now)
        with pytest.raises(Unreachable):
            await heir.count()
        world.now += timedelta(minutes=15)
    assert heir.sample("skipped_total", reason="OutsideCatchUpWindow") == 0
    world.runs.unlisted = None
    await heir.firing.drain(world.now)
    assert await heir.count() == sum(len(missing(world, name)) for name in ("a", "b"))


async def test_one_whose_runs_cannot_be_listed_holds_up_no_other(world: World) -> None:
    heir = await half_an_hour_that_no_status_tells(world, "a", "b")
    world.now = at("12:50:30")
    heir.see()
    world.runs.unlisted, world.runs.listed = AWAY, {"b"}
    await heir.firing.drain(world.now)
    with pytest.raises(Unreachable):
        await heir.count()
    await heir.write_status()
    assert (skipped(world, "a"), skipped(world, "b")) == (None, (10, at("12:40")))
    world.runs.unlisted = None
    assert await heir.count() == 10


async def test_who_starts_before_it_is_counted_counts_it(world: World) -> None:
    """FI-01: the first of two to start fires for both, and then has but its share; or it ends just then."""
    heir = await half_an_hour_that_no_status_tells(world, "a")
    world.now = at("12:50:30")
    heir.see()
    await heir.firing.drain(world.now)
    await heir.write_status()
    status = world.schedules.stored["a"].status
    assert (status.last_due_time, status.skipped) == (None, None)
    assert status.next_due_time == at("12:51")
    world.operators.clear()
    await starts(world.operator("op-3"), at("12:50:40"))
    assert world.schedules.stored["a"].status.last_due_time == at("12:50")
    assert skipped(world) == (10, at("12:40"))


async def test_what_an_edited_schedule_passed_over_is_counted_by_its_former_rule(world: World) -> None:
    heir = await half_an_hour_that_no_status_tells(world, "a")
    world.now = at("12:50:30")
    heir.see()
    await heir.firing.drain(world.now)
    world.schedules.put("a", cron="0 4 * * *", active_since=world.now)
    heir.see()
    assert await heir.count() == 10


async def test_the_read_of_an_api_server_that_is_slow_is_made_less_often(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a", created=at("10:00"))
    operator.see()
    assert operator.missed.pause() == 5.0
    for takes, pause in ((2.0, 20.0), (9.0, 60.0)):
        await operator.firing.drain(world.now)
        listing = asyncio.create_task(operator.count())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        world.monotonic += takes
        await listing
        assert operator.missed.pause() == pause
        world.now += timedelta(hours=1)


async def test_what_is_passed_over_again_and_again_waits_as_one(world: World) -> None:
    """A create that is refused for good passes one due time a minute; memory does not grow by it."""
    heir = await half_an_hour_that_no_status_tells(world, "a")

    def refused(_: RunInvocation) -> Unreachable:
        return AWAY

    world.runs.fail, world.runs.unlisted = refused, AWAY
    world.now = at("12:50:30")
    heir.see()
    for _ in range(30):
        await heir.firing.drain(world.now)
        with pytest.raises(Unreachable):
            await heir.count()
        world.now += timedelta(minutes=1)
    entry = heir.entry("a")
    assert [(each.after, each.horizon) for each in entry.passed] == [(at("12:00:30"), at("13:09:29.999999"))]


def missing(world: World, name: str) -> list[str]:
    """The due times after 12:00 older than the window that have no run."""
    there, due, found = set(world.due_names(name)), at("12:01"), []
    while world.now - due > timedelta(minutes=10):
        if f"{due:%H:%M}" not in there:
            found.append(f"{due:%H:%M}")
        due += timedelta(minutes=1)
    return found
