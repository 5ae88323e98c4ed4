"""What is written about schedules: their status and Events."""

import asyncio
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from astrabox_scheduler_client.errors import ApiError, Forbidden, NotServed, Unreachable
from astrabox_scheduler_crds.deletion import deleted
from astrabox_scheduler_crds.firing import SkipReason
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleStatus
from astrabox_scheduler_operator.entry import Gap
from astrabox_scheduler_operator.reporter import gap_note
from astrabox_scheduler_operator.schedule_status import state_of
from tests.unit.operator.world import MARKER, START, World, at


def status(world: World, name: str = "a") -> ScheduleStatus:
    return world.schedules.stored[name].status


async def test_the_status_is_current_after_an_edit(world: World) -> None:
    """OB-02: next due in UTC after a cron edit; empty while disabled; the same code that fires wrote it."""
    operator = world.operator()
    world.schedules.put("a", cron="0 9 * * *", time_zone="Asia/Shanghai")
    operator.see()
    await operator.write_status()
    assert world.schedules.stored["a"].to_dict()["status"]["nextDueTime"] == "2026-06-02T01:00:00Z"
    assert status(world).observed_generation == 1
    world.schedules.put("a", cron="30 20 * * *")
    operator.see()
    await operator.write_status()
    assert world.schedules.stored["a"].to_dict()["status"]["nextDueTime"] == "2026-06-01T12:30:00Z"
    assert status(world).observed_generation == 2
    world.schedules.put("a", enabled=False)
    operator.see()
    await operator.write_status()
    assert status(world).next_due_time is None
    suspended = {each.type: (each.status, each.reason) for each in status(world).conditions}
    assert suspended == {"Ready": ("True", "Disabled"), "Suspended": ("True", "Disabled")}
    assert {each.observed_generation for each in status(world).conditions} == {3}


async def test_what_is_left_of_a_deleted_schedule_says_so(world: World) -> None:
    """It is no schedule that waits to be enabled, nor one that somebody should mend."""
    operator = world.operator()
    old = world.schedules.put("a", cron="never")
    operator.see()
    tombstone = deleted("a", old, START)
    metadata = tombstone.metadata.changed(generation=2)
    world.schedules._store(tombstone.changed(metadata=metadata))
    operator.see()
    await operator.write_status()
    conditions = {each.type: (each.status, each.reason) for each in status(world).conditions}
    assert conditions["Ready"] == ("False", "Deleted")
    assert [state_of(entry) for entry in operator.index] == ["deleted"]


async def test_nothing_is_written_twice(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    await operator.write_status()
    operator.see()
    await operator.write_status()
    operator.status.touch("a")
    await operator.write_status()
    assert len(world.schedules.patches) == 1


async def test_a_transition_time_stays_while_the_state_does(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    await operator.write_status()
    first = status(world).conditions
    world.now += timedelta(minutes=5)
    world.schedules.put("a", payload='{"p":"new"}')
    operator.see()
    await operator.write_status()
    for before, after in zip(first, status(world).conditions, strict=True):
        assert before.last_transition_time == after.last_transition_time
        assert after.observed_generation == 2


async def test_the_status_has_a_fixed_size(world: World) -> None:
    """RT-05: after 1,000 runs below 4 KiB, no list of runs in it."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    now = at("12:01")
    for _ in range(1000):
        await operator.at(now)
        now += timedelta(minutes=1)
    await operator.write_status()
    assert len(world.runs.stored) == 1000
    assert len(status(world).to_json()) < 1024


async def test_the_status_with_the_longest_texts_is_below_4_kib(world: World) -> None:
    """RT-05: a refusal with a long text too."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.runs.fail = lambda _: Forbidden("x" * 5000, status=403, reason="Forbidden")
    await operator.at(at("12:01"))
    await operator.write_status()
    assert len(status(world).to_json()) < 4096


async def test_last_due_time_never_goes_back(world: World) -> None:
    """A status that another one wrote meanwhile is read, not overwritten."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    await operator.at(at("12:01"))
    stored = world.schedules.stored["a"]
    later = stored.status.changed(last_due_time=at("12:02"), last_run="a-20260601t1202z")
    world.schedules._store(stored.changed(status=later))
    world.now = at("12:02:10")
    await operator.write_status()
    await operator.write_status()
    assert status(world).last_due_time == at("12:02")
    assert status(world).last_run == "a-20260601t1202z"


async def test_only_the_owner_writes(world: World) -> None:
    for number in range(40):
        world.schedules.put(f"s{number}")
    for identity in ("op-1", "op-2"):
        world.operators.add(identity)
    for identity in ("op-1", "op-2"):
        operator = world.operator(identity)
        operator.see()
        await operator.write_status()
        assert 5 < operator.sample("status_writes_total") < 35
    assert sorted(name for name, _ in world.schedules.patches) == sorted(world.schedules.stored)


async def test_writes_wait_for_the_burst(world: World) -> None:
    """Statuses delay no fire: while a burst is in progress nothing is written."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    operator.firing.idle.clear()
    writing = asyncio.create_task(operator.status.run(operator.index))
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.schedules.patches == []
    operator.firing.idle.set()
    async with asyncio.timeout(1):
        while not world.schedules.patches:  # noqa: ASYNC110 - the writer runs in the background
            await asyncio.sleep(0)
    writing.cancel()
    await asyncio.wait({writing})


@pytest.mark.parametrize("error", [Unreachable("cut"), NotServed("404")])
async def test_a_status_that_cannot_be_written_is_tried_again_later(world: World, error: ApiError) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.schedules.fail = error
    assert not await operator.status.write(operator.index, "a")
    assert len(operator.status) == 1
    world.schedules.fail = None
    await operator.write_status()
    assert status(world).observed_generation == 1


async def test_what_a_write_without_an_answer_left_goes_with_its_schedule(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.schedules.fail = Unreachable("cut")
    assert not await operator.status.write(operator.index, "a")
    world.schedules.stored.clear()
    operator.see("a")
    assert not await operator.status.write(operator.index, "a")
    assert operator.status._unanswered == {}


async def test_a_group_that_is_not_served_is_not_taken_for_a_deleted_schedule(world: World) -> None:
    """An API server that starts, or whose CRDs are replaced, answers 404 for every object."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.schedules.put("a", cron="0 3 * * *")  # our write meets a conflict and the object is read again

    async def not_served(name: str) -> DeploymentSchedule:
        raise NotServed("404 page not found", status=404)

    world.schedules.get = not_served  # type: ignore[method-assign]
    assert not await operator.status.write(operator.index, "a")
    assert operator.index.get("a") is not None


async def test_at_the_end_each_status_is_tried_once(world: World) -> None:
    """An API server that fails is not hammered in the seconds that a process has to end."""
    operator = world.operator()
    for number in range(20):
        world.schedules.put(f"s{number}")
    operator.see()
    real, tries = world.schedules.patch_status, []

    async def patch(name: str, status: Mapping[str, Any], version: str | None = None) -> ObjectMeta:
        tries.append(name)
        await asyncio.sleep(0)
        if name == "s3":
            return await real(name, status, version)
        if len(tries) > 100:
            raise RuntimeError("hammered")
        raise Unreachable("cut", reason="Cut")

    world.schedules.patch_status = patch  # type: ignore[method-assign,assignment]
    await operator.write_status()
    assert sorted(tries) == sorted(world.schedules.stored)
    assert status(world, "s3").observed_generation == 1
    assert len(operator.status) == 19


async def test_a_write_that_the_end_cuts_off_is_flushed(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    real, begun = world.schedules.patch_status, asyncio.Event()

    async def hangs(name: str, status: Mapping[str, Any], version: str | None = None) -> ObjectMeta:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    world.schedules.patch_status = hangs  # type: ignore[method-assign,assignment]
    writing = asyncio.create_task(operator.status.run(operator.index))
    await begun.wait()
    writing.cancel()
    await asyncio.wait({writing})
    world.schedules.patch_status = real  # type: ignore[method-assign]
    await operator.write_status()
    assert status(world).observed_generation == 1


async def test_one_event_tells_a_whole_outage(world: World) -> None:
    """OB-01, OB-05: operators away for 20 minutes, `*/5`: counted, named in the status, told once."""
    world.schedules.put("a", created=at("11:36"), cron="*/5 * * * *")
    world.now = at("12:00:30")
    operator = world.operator()
    operator.see()
    await operator.at(at("12:00:31"))
    await operator.at(at("12:00:40"))
    await operator.write_status()
    await operator.reporter.flush()
    assert operator.sample("skipped_total", reason="OutsideCatchUpWindow") == 3
    skipped = status(world).skipped
    assert skipped is not None
    assert (skipped.count, skipped.last_due_time, skipped.reason) == (3, at("11:50"), "OutsideCatchUpWindow")
    ((name, reason, note),) = operator.events.written
    assert (name, reason) == ("a", "DueTimesSkipped")
    assert note == (
        "3 due times were skipped, from 2026-06-01T11:40:00Z to 2026-06-01T11:50:00Z: they could not be "
        "fired within the catch-up window. The next due time is 2026-06-01T12:05:00Z."
    )


async def test_an_outage_of_astrabox_is_told_when_it_is_over(world: World) -> None:
    """OB-05: one Event per schedule and outage, not one per due time."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:40"))
    for minute in range(1, 6):
        await operator.at(at(f"12:0{minute}:30"))
    await operator.reporter.flush()
    assert operator.events.written == []
    world.provider("astrabox-2", at("12:05:45"))
    await operator.at(at("12:05:50"))
    await operator.at(at("12:06:00"))
    await operator.reporter.flush()
    ((_, _, note),) = operator.events.written
    assert note.startswith("5 due times were skipped, from 2026-06-01T12:01:00Z to 2026-06-01T12:05:00Z")
    assert "no AstraBox process was running" in note
    assert status(world).skipped is None, "the status is written apart"


async def test_gaps_of_two_reasons_are_told_apart(world: World) -> None:
    """OB-05: nobody was there, then operators were away; and what has fired in between is in neither."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:40"))
    for minute in (1, 2):
        await operator.at(at(f"12:0{minute}:30"))
    world.provider("astrabox-2", at("12:02:35"), until=at("12:03:30"))
    await operator.at(at("12:03"))
    assert world.runs.stored.keys() == {"a-20260601t1203z"}
    await operator.at(at("12:04:30"))
    world.provider("astrabox-3", at("12:04:40"))
    await operator.at(at("12:20:30"))
    await operator.at(at("12:20:40"))
    await operator.reporter.flush()
    notes = [note for _, _, note in operator.events.written]
    assert [re.split(r"[:,.] ", note.replace("2026-06-01T", ""))[:3] for note in notes] == [
        ["2 due times were skipped", "from 12:01:00Z to 12:02:00Z", "no AstraBox process was running"],
        ["1 due time was skipped", "at 12:04:00Z", "no AstraBox process was running"],
        [
            "6 due times were skipped",
            "from 12:05:00Z to 12:10:00Z",
            "they could not be fired within the catch-up window",
        ],
    ]


async def test_normal_runs_make_no_events(world: World) -> None:
    """AL-08: 500 runs in a minute: no Event, and no Event ever holds a payload."""
    operator = world.operator()
    for number in range(500):
        world.schedules.put(f"s{number}")
    operator.see()
    await operator.at(at("12:01"))
    await operator.write_status()
    await operator.reporter.flush()
    assert len(world.runs.stored) == 500
    assert operator.events.written == []


async def test_a_restart_does_not_tell_an_invalid_schedule_again(world: World) -> None:
    world.schedules.put("a", cron="nonsense")
    first = world.operator("op-1")
    first.see()
    await first.write_status()
    world.operators.clear()
    second = world.operator("op-2")
    second.see()
    await second.write_status()
    world.schedules.put("a", payload='{"p":"new"}')
    second.see()
    await second.write_status()
    assert status(world).observed_generation == 2
    for each in (first, second):
        await each.reporter.flush()
    assert [len(each.events.written) for each in (first, second)] == [1, 0]
    assert MARKER not in str(first.events.written)


async def test_an_echo_that_is_faster_than_the_answer_hides_no_event(world: World) -> None:
    """TZ-08: the watch brings our own write before the call returns."""
    operator = world.operator()
    world.schedules.put("a", time_zone="Mars/Olympus")
    operator.see()
    real = world.schedules.patch_status

    async def patch(name: str, status: Mapping[str, Any], version: str | None = None) -> ObjectMeta:
        stored = await real(name, status, version)
        operator.see()
        return stored

    world.schedules.patch_status = patch  # type: ignore[method-assign,assignment]
    await operator.write_status()
    await operator.reporter.flush()
    assert [reason for _, reason, _ in operator.events.written] == ["InvalidZone"]


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (1, "1 due time was skipped, at 2026-06-01T12:01:00Z: it could not be fired"),
        (1000, "at least 1000 due times were skipped, from 2026-06-01T12:01:00Z to 2026-06-01T13:00:00Z:"),
    ],
)
def test_the_note_of_a_gap(count: int, text: str) -> None:
    """OB-05: what, from when to when, and what comes next."""
    note = gap_note(Gap(at("12:01"), at("13:00"), count, SkipReason.MISSED), None)
    assert note.startswith(text)
    assert note.endswith("No due time follows.")
