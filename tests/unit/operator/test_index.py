"""The index: what it makes of objects, good and bad, in any order."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from astrabox_scheduler_crds.cron import CronSchedule
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.schedule import (
    DeploymentSchedule,
    EarlierRule,
    ScheduleSpec,
    ScheduleStatus,
    Skipped,
)
from astrabox_scheduler_operator.index import MAX_KEPT_PAYLOAD
from tests.unit.operator.world import MARKER, START, Operator, World, at


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"cron": "0 0 31 2 *"}, "InvalidCron", id="CC-09 never"),
        pytest.param({"cron": "0 0 31 4,6,9,11 *"}, "InvalidCron", id="CC-09 short months"),
        pytest.param({"cron": "@daily"}, "InvalidCron", id="CC-09 nickname"),
        pytest.param({"time_zone": "Mars/Olympus"}, "InvalidZone", id="TZ-08 unknown zone"),
        pytest.param({"time_zone": "europe/berlin"}, "InvalidZone", id="TZ-09 case"),
        pytest.param({"payload": MARKER}, "InvalidPayload", id="CC-09 no JSON"),
        pytest.param({"payload": f'["{MARKER}"]'}, "InvalidPayload", id="CC-09 no object"),
        pytest.param({"payload": MARKER * MAX_KEPT_PAYLOAD}, "InvalidPayload", id="CC-09 no JSON, large"),
        pytest.param({"deployment_id": "other"}, "NameMismatch", id="NameMismatch"),
    ],
)
async def test_an_object_that_cannot_be_used_harms_no_other(
    world: World, fields: dict[str, Any], reason: str
) -> None:
    """TZ-08, CC-09: the good one fires on time; the bad one gets a condition, an Event and no run."""
    operator = world.operator()
    world.schedules.put("bad", **fields)
    world.schedules.put("good")
    operator.see()
    await operator.minutes("12:01", "12:02")
    await operator.write_status()
    await operator.reporter.flush()
    assert world.due_names("good") == ["12:01", "12:02"]
    assert len(world.runs.stored) == 2
    status = world.schedules.stored["bad"].status
    (ready,) = (each for each in status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", reason)
    assert ready.message
    assert MARKER not in ready.message + str(operator.events.written)
    assert status.next_due_time is None
    assert [(name, why) for name, why, _ in operator.events.written] == [("bad", reason)]
    assert operator.queue.planned("bad") is None, "no requeue storm"


async def test_a_zone_that_is_gone_from_the_database_can_be_disabled_and_corrected(world: World) -> None:
    """TZ-09: stored with a zone that no longer loads: disabling, correcting and deleting all work."""
    operator = world.operator()
    world.schedules.put("a", time_zone="Atlantis/Old")
    operator.see()
    assert operator.entry("a").problem is not None
    world.schedules.put("a", enabled=False)
    operator.see()
    await operator.write_status()
    suspended = {each.type: each.status for each in world.schedules.stored["a"].status.conditions}
    assert suspended == {"Ready": "False", "Suspended": "True"}
    world.schedules.put("a", enabled=True, time_zone="UTC")
    operator.see()
    await operator.at(at("12:01"))
    assert world.due_names("a") == ["12:01"]
    del world.schedules.stored["a"]
    operator.see("a")
    assert len(operator.index) == 0


async def test_a_calculus_that_does_not_advance_is_a_condition_not_a_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CC-24: a result that is not later than its input is an error of that schedule alone."""
    operator = world.operator()
    world.schedules.put("a", cron="7 * * * *")
    world.schedules.put("b")
    real = CronSchedule.next_after

    def stuck(self: CronSchedule, instant: datetime) -> datetime:
        return instant if self.text == "7 * * * *" else real(self, instant)

    monkeypatch.setattr(CronSchedule, "next_after", stuck)
    operator.see()
    await operator.at(at("12:07:01"))
    problem = operator.entry("a").problem
    assert problem is not None
    assert problem.reason == "CronNotAdvancing"
    assert len(world.due_names("b")) == 7


async def test_an_unreadable_object_is_told_once_and_harms_no_other(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """CC-09: an object without our shape, again and again."""
    operator = world.operator()
    world.schedules.put("good")
    operator.see()
    metadata = ObjectMeta(name="odd", uid="u", generation=1)
    for _ in range(3):
        operator.index.upsert_unreadable(metadata, ("spec.cron",), world.now)
    await operator.at(at("12:01"))
    assert world.due_names("good") == ["12:01"]
    assert len([r for r in caplog.records if "cannot be read" in r.getMessage()]) == 1
    world.schedules.put("odd")
    operator.see()
    assert operator.entry("odd").problem is None


async def test_an_older_generation_from_the_watch_changes_nothing(world: World) -> None:
    """OO-04: a watch that brings the past."""
    operator = world.operator()
    old = world.schedules.put("a", cron="5 12 * * *")
    world.schedules.put("a", cron="6 12 * * *")
    operator.see()
    operator.index.upsert(old, world.now)
    assert operator.entry("a").next_due == at("12:06")
    operator.index.upsert_read(old, world.now, operator.entry("a"))
    assert operator.entry("a").next_due != at("12:06"), "a consistent read is believed"


@pytest.mark.parametrize(
    "fields", [{"cron": "6 12 * * *"}, {"payload": '{"p":"other"}'}, {"enabled": False}, {"payload": "no"}]
)
async def test_a_generation_that_is_used_again_for_another_spec_is_taken_in(
    world: World, fields: dict[str, Any]
) -> None:
    """G1, G8: the store was restored under a live operator, and edited in another way since."""
    operator = world.operator()
    old = world.schedules.put("a", cron="5 12 * * *")
    world.schedules.put("a", cron="7 12 * * *")
    operator.see()
    seen = operator.entry("a").version
    world.schedules.stored["a"] = old
    again = world.schedules.put("a", **fields)
    operator.see()
    entry = operator.entry("a")
    assert entry.version == seen
    assert (entry.enabled, entry.payload) == (again.spec.enabled, again.spec.payload)
    if entry.problem is None:
        assert entry.observed.time_rule == again.spec.time_rule
    operator.see()
    assert operator.entry("a") is entry, "and it is its own echo"


@pytest.mark.parametrize("payload", ['"x' + "x" * MAX_KEPT_PAYLOAD + '"', "x" * (MAX_KEPT_PAYLOAD + 1), "x"])
async def test_an_echo_of_any_payload_is_an_echo(world: World, payload: str) -> None:
    operator = world.operator()
    world.schedules.put("a", payload=payload)
    operator.see()
    entry = operator.entry("a")
    operator.see()
    assert operator.entry("a") is entry


async def test_a_read_that_is_answered_late_undoes_nothing(world: World) -> None:
    """OO-04: what the watch has brought since the read began is newer than its answer."""
    operator = world.operator()
    old = world.schedules.put("a", cron="5 12 * * *")
    operator.see()
    known = operator.entry("a")
    newer = world.schedules.put("a", cron="6 12 * * *")
    operator.see()
    operator.index.upsert_read(old, world.now, known)
    assert operator.entry("a").version[1] == newer.metadata.generation
    newest = world.schedules.put("a", cron="7 12 * * *")
    operator.index.upsert_read(newest, world.now, known)
    assert operator.entry("a").version[1] == newest.metadata.generation, (
        "the answer may be ahead of the watch"
    )


async def test_a_read_that_is_answered_late_brings_nothing_back(world: World) -> None:
    """OO-04: deleted, or made anew, since the read began."""
    operator = world.operator()
    old = world.schedules.put("a")
    operator.see()
    known = operator.entry("a")
    operator.index.remove("a", old.metadata.uid)
    operator.index.upsert_read(old, world.now, known)
    assert operator.index.get("a") is None
    del world.schedules.stored["a"]
    anew = world.schedules.put("a")
    operator.see()
    operator.index.upsert_read(old, world.now, known)
    operator.index.forget(known)
    assert operator.entry("a").metadata.uid == anew.metadata.uid


async def test_a_delete_of_the_one_before_does_not_remove_the_one_there(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    operator.index.remove("a", "the uid of the one before")
    assert operator.entry("a").name == "a"


async def test_an_echo_of_our_own_status_is_cheap(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    await operator.at(at("12:01"))
    await operator.write_status()
    before = operator.entry("a")
    monkeypatch.setattr(CronSchedule, "next_after", lambda *_: pytest.fail("a due time was computed"))
    operator.see()
    await operator.write_status()
    assert operator.entry("a") is before
    assert len(world.schedules.patches) == 1


async def test_a_status_from_the_future_is_not_believed(world: World) -> None:
    """FI-06: somebody's clock was a day ahead when the status was written; the name still guards."""
    operator = world.operator()
    stored = world.schedules.put("a")
    tomorrow = START + timedelta(days=1)
    status = ScheduleStatus(
        last_due_time=tomorrow.replace(second=0), skipped=Skipped(count=1, last_due_time=tomorrow)
    )
    world.schedules.stored["a"] = stored.changed(status=status)
    operator.see()
    assert operator.entry("a").next_due == at("12:01")


async def test_since_when_a_rule_holds_is_one_answer_for_all_replicas(world: World) -> None:
    """An edit by hand is seen by two replicas at different times; what is written counts."""
    world.schedules.put("a", cron="5 12 * * *")
    first, second = world.operator("op-1"), world.operator("op-2")
    first.see()
    second.see()
    world.schedules.put("a", cron="* * * * *")
    world.now = at("12:02:50")
    first.see()
    world.now = at("12:03:10")
    second.see()
    writer, other = (first, second) if await _wrote(first) else (second, first)
    if not world.schedules.patches:
        await writer.write_status()
    other.see()
    assert other.entry("a").observed.active_since == writer.entry("a").observed.active_since


@pytest.mark.parametrize(("owing", "before", "after"), [(False, "12:03", "12:04"), (True, "12:01", "12:01")])
async def test_a_beginning_that_another_replica_wrote_moves_the_present_rule_alone(
    world: World, owing: bool, before: str, after: str
) -> None:
    """It takes back what is not due by the rule, and leaves what the rule before it owes."""
    operator = world.operator()
    world.schedules.put("a", cron="5 12 * * *")
    operator.see()
    world.now = at("12:02:50")
    owed = EarlierRule(
        cron="1 12 * * *", time_zone="UTC", active_since=at("12:00:40"), active_until=at("12:02")
    )
    stored = world.schedules.put("a", cron="* * * * *", earlier_rules=(owed,) if owing else None)
    operator.index.upsert(stored, world.now)
    assert operator.entry("a").next_due == at(before)
    status = ScheduleStatus(time_rule=stored.spec.time_rule, active_since=at("12:03:10"))
    operator.index.upsert(stored.changed(status=status), world.now)
    entry = operator.entry("a")
    assert entry.next_due == at(after)
    entry.settle_fired(at(after))
    assert entry.next_due == at("12:04" if owing else "12:05")


async def _wrote(operator: Operator) -> bool:
    await operator.write_status()
    return bool(operator.world.schedules.patches)


async def test_the_observed_rule_survives_a_restart(world: World) -> None:
    """PA-01: what was seen before the restart is in the status."""
    world.schedules.put("a", cron="5 12 * * *")
    first = world.operator("op-1")
    first.see()
    world.now = at("12:03")
    world.schedules.put("a", cron="1 12 * * *")
    first.see()
    await first.write_status()
    world.operators.clear()
    second = world.operator("op-2")
    world.now = at("12:04")
    second.see()
    await second.at(at("12:04"))
    assert second.entry("a").observed.active_since == at("12:03")
    assert world.runs.creates == []


def test_a_schedule_that_is_being_deleted_does_not_fire(world: World) -> None:
    """AL-06: kept by somebody's finalizer it counts as deleted."""
    operator = world.operator()
    item = world.schedules.put("a")
    gone = item.changed(metadata=item.metadata.changed(deletion_timestamp=START, generation=2))
    operator.index.upsert(gone, world.now)
    assert operator.entry("a").next_due is None


async def test_any_deployment_id_fires_under_its_key(world: World) -> None:
    operator = world.operator()
    odd = "Nightly report / 定时任务"
    key = deployment_key(odd)
    world.schedules.put(key, deployment_id=odd)
    operator.see()
    await operator.at(at("12:01"))
    (run,) = world.runs.stored.values()
    assert (run.metadata.name, run.spec.deployment_id) == (f"{key}-20260601t1201z", odd)


def test_the_time_rule_is_kept_for_an_object_without_creation_time(world: World) -> None:
    operator = world.operator()
    spec = ScheduleSpec(deployment_id="a", cron="* * * * *", time_zone="UTC", payload="{}")
    operator.index.upsert(DeploymentSchedule(metadata=ObjectMeta(name="a", uid="u"), spec=spec), START)
    assert operator.entry("a").cursor == START
