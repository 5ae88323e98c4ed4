"""Due times that were skipped while every AstraBox process was cut off, and what becomes of them."""

import logging
from datetime import timedelta
from typing import Any

import pytest

from astrabox_scheduler_client.errors import QuotaExceeded
from astrabox_scheduler_crds.firing import SkipReason
from astrabox_scheduler_crds.metadata import utc_text
from astrabox_scheduler_crds.run import Phase
from astrabox_scheduler_crds.timeline import next_change, replaced
from astrabox_scheduler_operator.schedule_status import status_of
from tests.unit.operator.test_orphans import run
from tests.unit.operator.world import Operator, World, at, finished


def cut(world: World, name: str = "astrabox-1", until: str = "12:00:40") -> None:
    """It cannot renew its Lease any more."""
    world.provider(name, at("06:00"), until=at(until))


def back(world: World, name: str = "astrabox-1") -> None:
    """It renews the Lease that it had."""
    world.provider(name, at("06:00"))


async def after_a_cut(world: World, **schedule: Any) -> Operator:
    """12:01 and 12:02 are skipped, since nobody was there as far as anybody could know."""
    operator = world.operator()
    world.schedules.put("a", **schedule)
    operator.see()
    cut(world)
    for now in ("12:01:21", "12:02:21", "12:02:30"):
        await operator.at(at(now))
    assert world.due_names("a") == []
    assert operator.sample("skipped_total", reason="NoAstraBoxProcess") == 2
    return operator


async def test_what_a_process_was_cut_off_for_fires_once_it_is_back(world: World) -> None:
    """G1: told as skipped when nobody could know better; late, and once, when a Lease covers it."""
    operator = await after_a_cut(world)
    back(world)
    await operator.at(at("12:02:40"))
    assert world.due_names("a") == ["12:01", "12:02"]
    await operator.at(at("12:03:01"))
    creates = len(world.runs.creates)
    for now in ("12:03:30", "12:03:40"):
        await operator.at(at(now))
    assert len(world.runs.creates) == creates == 3
    await operator.reporter.flush()
    assert operator.events.written == [], "nothing was missed in the end"


async def test_the_first_skip_of_a_gap_is_a_warning(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """OB-02: its Event is written when it is over; a gap of a day does not fill the log with warnings."""

    def levels() -> list[str]:
        return [each.levelname for each in caplog.records if each.getMessage() == "skipped"]

    caplog.set_level(logging.INFO)
    operator = await after_a_cut(world)
    assert levels() == ["WARNING", "INFO"]
    world.provider("astrabox-2", at("12:02:50"))
    await operator.at(at("12:03:01"))
    assert world.due_names("a") == ["12:03"]
    world.provider("astrabox-2", at("12:02:50"), until=at("12:03:10"))
    for now in ("12:04:21", "12:05:21"):
        await operator.at(at(now))
    assert levels() == ["WARNING", "INFO"] * 2, "another gap begins"


async def test_who_takes_the_share_over_looks_back_as_well(world: World) -> None:
    """G1: what is in doubt stands in the status, until it is settled."""
    before = await after_a_cut(world)
    await before.write_status()
    world.operators.clear()
    heir = world.operator("op-2")
    heir.see()
    back(world)
    await heir.at(at("12:02:40"))
    assert world.due_names("a") == ["12:01", "12:02"]
    await heir.write_status()
    skipped = world.schedules.stored["a"].status.skipped
    assert skipped is not None
    assert (skipped.count, skipped.last_due_time, skipped.unproven_since) == (2, at("12:02"), None)
    world.operators = {"op-3"}
    third = world.operator("op-3")
    third.see()
    await third.at(at("12:02:50"))
    assert len(world.runs.creates) == 2


async def test_only_the_owner_looks_back(world: World) -> None:
    first = await after_a_cut(world)
    await first.write_status()
    second = world.operator("op-2")
    second.see()
    back(world)
    for each in (first, second):
        await each.firing.step(at("12:02:40"))
    assert sorted(len(each.entry("a").looked_back) for each in (first, second)) == [0, 2]


async def test_what_is_owed_is_left_to_a_new_owner(world: World) -> None:
    """An operator that has lost the share keeps nothing back; it looks back anew if it becomes its owner."""
    operator = await after_a_cut(world)
    back(world)
    entry = operator.entry("a")
    assert entry.look_back(world.presence(), at("11:52"))
    assert entry.next_due == at("12:01")
    entry.drop_owed()
    assert (entry.owed, entry.next_due) == ((), at("12:03"))
    assert entry.look_back(world.presence(), at("11:52"))


async def test_what_fired_is_not_owed(world: World) -> None:
    """G2: its run may be gone: deleted by a hand, or by retention under another window."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    await operator.at(at("12:01:01"))
    assert world.due_names("a") == ["12:01"]
    world.runs.stored.clear()
    cut(world, until="12:01:40")
    await operator.at(at("12:02:21"))
    back(world)
    await operator.at(at("12:02:40"))
    assert world.due_names("a") == ["12:02"]
    assert len(world.runs.creates) == 2


async def test_a_new_stretch_forgets_the_one_before_if_something_fired_between(world: World) -> None:
    operator = await after_a_cut(world)
    world.provider("astrabox-2", at("12:02:40"))
    await operator.at(at("12:03:01"))
    world.provider("astrabox-2", at("12:02:40"), until=at("12:03:20"))
    await operator.at(at("12:04:21"))
    skipped = operator.entry("a").skipped
    assert skipped is not None
    assert (skipped.count, skipped.unproven_since) == (3, at("12:04"))


async def test_a_proof_that_comes_later_counts_as_well(world: World) -> None:
    """G1: two processes were cut off one after the other; each shows where it was when it is back."""
    operator = await after_a_cut(world)
    world.provider("astrabox-2", at("12:02:35"), until=at("12:02:40"))
    await operator.at(at("12:03:21"))
    world.provider("astrabox-2", at("12:02:35"))
    await operator.at(at("12:03:30"))
    assert world.due_names("a") == ["12:03"]
    back(world)
    await operator.at(at("12:03:40"))
    assert world.due_names("a") == ["12:01", "12:02", "12:03"]
    assert len(world.runs.creates) == 3


async def test_only_what_is_proved_is_owed(world: World) -> None:
    """Back under its Lease, and gone again: it was there until its last renewal."""
    operator = await after_a_cut(world)
    cut(world, until="12:01:30")
    await operator.at(at("12:02:40"))
    assert world.due_names("a") == ["12:01"]
    skipped = operator.entry("a").skipped
    assert skipped is not None
    assert skipped.unproven_since == at("12:02")


async def test_a_process_that_came_later_proves_nothing(world: World) -> None:
    operator = await after_a_cut(world)
    world.provider("astrabox-2", at("12:02:35"))
    await operator.at(at("12:02:50"))
    assert world.due_names("a") == []


async def test_what_was_too_old_is_not_looked_back_at(world: World) -> None:
    """A cut longer than the window gets what lies in it; the Event tells of the rest alone."""
    operator = world.operator(window=timedelta(minutes=3))
    world.schedules.put("a")
    operator.see()
    cut(world)
    await operator.minutes("12:01", "12:06")
    await operator.at(at("12:06:30"))
    back(world)
    await operator.at(at("12:06:40"))
    assert world.due_names("a") == ["12:04", "12:05", "12:06"]
    await operator.at(at("12:06:50"))
    await operator.reporter.flush()
    (event,) = operator.events.written
    assert "3 due times" in event[2]
    assert "12:03" in event[2]


async def test_a_disable_that_came_first_wins(world: World) -> None:
    """G5: nothing of a disabled schedule starts."""
    operator = await after_a_cut(world)
    change(world, operator, enabled=False)
    back(world)
    await operator.at(at("12:02:40"))
    await operator.at(at("12:03:30"))
    assert world.due_names("a") == []


async def test_enabled_again_owes_nothing_of_before(world: World) -> None:
    """G1: no backfill of a pause, nor of what was before it."""
    operator = await after_a_cut(world)
    change(world, operator, enabled=False)
    change(world, operator, enabled=True)
    back(world)
    await operator.at(at("12:02:40"))
    assert world.due_names("a") == []


async def test_an_edit_that_came_first_drops_nothing(world: World) -> None:
    """G1, FI-03: the rule that it ends is kept for what is still in doubt."""
    operator = await after_a_cut(world)
    change(world, operator, cron="30 13 * * *")
    back(world)
    await operator.at(at("12:02:40"))
    assert world.due_names("a") == ["12:01", "12:02"]
    await operator.at(at("12:03:30"))
    assert world.due_names("a") == ["12:01", "12:02"]


async def test_an_edit_while_it_is_owed_drops_nothing(world: World) -> None:
    operator = await after_a_cut(world)
    back(world)
    assert operator.entry("a").look_back(world.presence(), at("11:52"))
    world.schedules.put("a", payload='{"p":"other"}')
    operator.see()
    assert operator.entry("a").owed == ()
    await operator.at(at("12:02:40"))
    assert world.due_names("a") == ["12:01", "12:02"]


async def test_one_whose_name_is_taken_is_counted_once(world: World) -> None:
    operator = await after_a_cut(world)
    first = world.runs.put(finished(run("a-20260601t1201z", None), Phase.SUCCEEDED))
    back(world)
    await operator.at(at("12:02:40"))
    assert world.due_names("a") == ["12:02"]
    assert world.runs.stored["a-20260601t1201z"] == first
    skipped = operator.entry("a").skipped
    assert skipped is not None
    assert (skipped.count, skipped.last_due_time) == (2, at("12:02"))
    assert skipped.reason == SkipReason.NO_PROVIDER


def change(world: World, operator: Operator, **spec: Any) -> None:
    """As the provider writes it: with the rules that it ends."""
    stored = world.schedules.stored["a"].changed(status=status_of(operator.entry("a"), world.now))
    now = world.now
    since = next_change(stored, now)
    enabled = spec.get("enabled", stored.spec.enabled)
    earlier = replaced(stored, since, now, enabled=enabled)
    world.schedules.put("a", active_since=since, earlier_rules=earlier, **spec)
    operator.see()


async def test_what_was_owed_and_could_not_be_fired_leaves_its_trace(world: World) -> None:
    """G1, OB-05: the process has shown that it was there, and the quota was full until it was too late."""
    operator = await after_a_cut(world)
    back(world)
    world.runs.fail = lambda _: QuotaExceeded("exceeded quota", status=403)
    now = at("12:02:40")
    while now < at("12:14"):
        await operator.at(now)
        now += timedelta(seconds=10)
    world.runs.fail = lambda _: None
    while now < at("12:16"):
        await operator.at(now)
        now += timedelta(seconds=10)
    await operator.reporter.flush()
    fired = world.due_names("a")
    notes = [note for _, reason, note in operator.events.written if reason == "DueTimesSkipped"]
    assert fired[0] == "12:04"
    (note,) = notes
    assert note.startswith("3 due times were skipped, from 2026-06-01T12:01:00Z to 2026-06-01T12:03:00Z")
    assert "within the catch-up window" in note
    skipped = operator.entry("a").skipped
    assert skipped is not None
    assert (skipped.count, skipped.reason, skipped.unproven_since) == (3, SkipReason.MISSED, None)


async def test_a_long_gap_keeps_its_count_and_its_end(world: World) -> None:
    """OB-05: 1,500 minutes without any process that could be seen; the latest ten fire after all."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    cut(world)
    now = at("12:01:21")
    for _ in range(1500):
        await operator.at(now)
        now += timedelta(minutes=1)
    back(world)
    for seconds in (20, 30):
        await operator.at(now - timedelta(minutes=1) + timedelta(seconds=seconds))
    await operator.reporter.flush()
    ((_, _, note),) = operator.events.written
    fired = len(world.runs.stored)
    assert 9 <= fired <= 11
    last = at("12:00") + timedelta(minutes=1500 - fired)
    assert f"{1500 - fired} due times were skipped, from 2026-06-01T12:01:00Z to {utc_text(last)}" in note


async def test_gaps_are_told_by_an_operator_that_stops(world: World) -> None:
    """OB-05: nobody else knows of a gap that is not over."""
    operator = await after_a_cut(world)
    operator.firing.tell_rest()
    operator.firing.tell_rest()
    await operator.reporter.flush()
    ((_, reason, note),) = operator.events.written
    assert reason == "DueTimesSkipped"
    assert note.startswith("2 due times were skipped")


async def test_of_what_was_owed_only_the_window_is_remembered(world: World) -> None:
    """G10: a network that breaks every hour for years fills no memory."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    for hour in ("12", "13", "14"):
        cut(world, until=f"{hour}:00:40")
        for minute in ("01", "02", "03"):
            await operator.at(at(f"{hour}:{minute}:21"))
        back(world)
        await operator.at(at(f"{hour}:03:40"))
        assert {f"{hour}:01", f"{hour}:02", f"{hour}:03"} <= set(world.due_names("a"))
        assert len(operator.entry("a").looked_back) <= 10
    assert len(operator.entry("a").looked_back) == 3


async def test_an_heir_owes_nothing_of_a_cut_that_was_longer_than_the_window(world: World) -> None:
    """G2: the oldest due times of it stay skipped, and are no reason to look back at what has fired since."""
    first = world.operator()
    world.schedules.put("a")
    first.see()
    cut(world)
    now = at("12:01:21")
    for _ in range(20):
        await first.at(now)
        now += timedelta(minutes=1)
    back(world)
    await first.at(now - timedelta(seconds=30))
    fired = len(world.runs.stored)
    assert fired >= 9
    await first.write_status()
    skipped = world.schedules.stored["a"].status.skipped
    assert skipped is not None
    assert skipped.unproven_since is None
    world.runs.stored.clear()  # a hand deletes them
    world.operators = {"op-2"}
    heir = world.operator("op-2")
    heir.see()
    await heir.at(now - timedelta(seconds=20))
    assert world.due_names("a") == ["12:21"], "what is due since"
