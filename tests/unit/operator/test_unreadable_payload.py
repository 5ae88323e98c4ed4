"""A payload that is no JSON object: nothing is due until it is corrected, and nothing is made up for then."""

from datetime import datetime

import pytest

from astrabox_scheduler_crds.labels import APPLIED_AT_ANNOTATION
from astrabox_scheduler_crds.metadata import utc_text
from tests.unit.operator.world import MARKER, Operator, World, at


async def broken(world: World) -> Operator:
    """Fires at 12:01; broken by hand at 12:01:30, and so until 12:04."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    await operator.at(at("12:01"))
    await operator.write_status()
    world.now = at("12:01:30")
    world.schedules.put("a", payload=f'{{"p":{MARKER}}}')
    operator.see()
    await operator.write_status()
    await operator.minutes("12:02", "12:04")
    await operator.write_status()
    return operator


def restarted(world: World, now: datetime) -> Operator:
    world.now = now
    world.operators.clear()
    operator = world.operator("op-2")
    operator.see()
    return operator


def ready(world: World) -> tuple[str, str]:
    return next(
        (c.status, c.reason) for c in world.schedules.stored["a"].status.conditions if c.type == "Ready"
    )


@pytest.mark.parametrize("restarts", [False, True])
async def test_what_was_due_meanwhile_is_not_made_up_for(world: World, *, restarts: bool) -> None:
    """As after a cron expression that could not be read; a restart in between makes no difference."""
    operator = await broken(world)
    assert ready(world) == ("False", "InvalidPayload")
    world.now = at("12:04:30")
    operator = restarted(world, world.now) if restarts else operator
    world.schedules.put("a", payload="{}")
    operator.see()
    await operator.minutes("12:05", "12:06")
    await operator.write_status()
    assert world.due_names("a") == ["12:01", "12:05", "12:06"]
    assert ready(world) == ("True", "Scheduled")
    assert world.schedules.stored["a"].status.skipped is None


async def test_a_correction_that_operators_see_late_counts_from_when_they_see_it(world: World) -> None:
    """By hand: nothing tells since when."""
    await broken(world)
    world.schedules.put("a", payload="{}")
    operator = restarted(world, at("12:06:30"))
    await operator.minutes("12:07", "12:07")
    assert world.due_names("a") == ["12:01", "12:07"]


async def test_a_correction_by_astrabox_counts_from_when_it_was_made(world: World) -> None:
    """FI-04: operators were away: what was due since is caught up, what was due before it is not."""
    await broken(world)
    stored = world.schedules.put("a", payload="{}")
    annotations = {APPLIED_AT_ANNOTATION: utc_text(at("12:04:30"))}
    world.schedules._store(stored.changed(metadata=stored.metadata.changed(annotations=annotations)))
    operator = restarted(world, at("12:06:30"))
    await operator.minutes("12:06", "12:07")
    assert world.due_names("a") == ["12:01", "12:05", "12:06", "12:07"]


async def test_an_edit_of_the_rule_by_hand_does_not_count_from_what_astrabox_wrote_before(
    world: World,
) -> None:
    """FI-03: another payload by AstraBox at 12:02, another expression by hand at 12:05:30."""
    operator = world.operator()
    stored = world.schedules.put("a", cron="0 14 * * *")
    operator.see()
    annotations = {APPLIED_AT_ANNOTATION: utc_text(at("12:02"))}
    world.schedules._store(stored.changed(metadata=stored.metadata.changed(annotations=annotations)))
    world.now = at("12:05:30")
    world.schedules.put("a", cron="* * * * *")
    operator.see()
    await operator.minutes("12:06", "12:06")
    assert world.due_names("a") == ["12:06"]


async def test_all_replicas_have_one_answer(world: World) -> None:
    """Broken and corrected, seen by the other one later: what was written counts."""
    first, second = world.operator("op-1"), world.operator("op-2")
    world.schedules.put("a")
    for operator in (first, second):
        operator.see()
        await operator.write_status()
    for when, later, payload in (("12:02:10", "12:02:40", "none"), ("12:04:50", "12:05:10", "{}")):
        world.schedules.put("a", payload=payload)
        world.now = at(when)
        first.see()
        world.now = at(later)
        second.see()
        for operator in (first, second):
            await operator.write_status()
            operator.see()
        entries = [operator.index.get("a") for operator in (first, second)]
        first.see()
        assert len({each.observed.active_since for each in entries if each is not None}) == 1


async def test_a_correction_by_hand_does_not_count_from_what_astrabox_wrote_before(world: World) -> None:
    """Every schedule of AstraBox says when it was written: that was before it was broken."""
    operator = world.operator()
    stored = world.schedules.put("a")
    annotations = {APPLIED_AT_ANNOTATION: utc_text(at("12:00:30"))}
    marked = stored.changed(metadata=stored.metadata.changed(annotations=annotations))
    world.schedules._store(marked)
    operator.see()
    await operator.minutes("12:01", "12:01")
    for when, payload in (("12:01:30", "none"), ("12:04:30", "{}")):
        world.now = at(when)
        await operator.minutes("12:02", "12:04") if payload == "{}" else None
        stored = world.schedules.put("a", payload=payload)
        world.schedules._store(stored.changed(metadata=stored.metadata.changed(annotations=annotations)))
        world.now = at(when)
        operator.see()
        await operator.write_status()
    await operator.minutes("12:05", "12:06")
    assert world.due_names("a") == ["12:01", "12:05", "12:06"]


async def test_what_another_python_may_read_is_not_refused(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a", payload='{"p":' * 20_000 + "1" + "}" * 20_000)
    operator.see()
    await operator.at(at("12:01"))
    assert world.due_names("a") == ["12:01"]
