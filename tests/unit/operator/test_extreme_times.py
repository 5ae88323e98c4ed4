"""Times that a hand or a tool has written, from year 1 to year 9999: they harm no other schedule."""

from typing import Any

import pytest

from astrabox_scheduler_crds.firing import MAX_CATCH_UP_WINDOW
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import Phase, RunInvocation
from astrabox_scheduler_crds.schedule import ScheduleSpec, ScheduleStatus
from astrabox_scheduler_crds.timeline import Timeline, replaced
from tests.unit.operator.test_orphans import orphans_of
from tests.unit.operator.world import World, at

FIRST, LAST = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"
NOW, LATER = "2026-06-01T12:00:00Z", "2099-01-01T00:00:00Z"


def skipped(last: str, unproven: str) -> dict[str, Any]:
    fields = {"lastDueTime": last, "unprovenSince": unproven, "reason": "NoAstraBoxProcess"}
    return {"skipped": fields | {"count": 10**9}}


def earlier(since: str, until: str) -> dict[str, Any]:
    return {"earlierRules": [_rule(since, until), _rule(since, until) | {"disabled": True}]}


def _rule(since: str, until: str) -> dict[str, Any]:
    return {"cron": "*/7 * * * *", "timeZone": "UTC", "activeSince": since, "activeUntil": until}


STATUSES = [skipped(last, unproven) for last in (FIRST, NOW, LATER, LAST) for unproven in (FIRST, NOW, LAST)]
STATUSES += [{"lastDueTime": each, "lastRun": "x"} for each in (FIRST, LAST)]
STATUSES += [{"activeSince": each, "timeRule": "RULE"} for each in (FIRST, LAST)]
SPECS = [{"activeSince": each} for each in (FIRST, LAST)]
SPECS += [
    {"activeSince": active} | earlier(since, until)
    for active in (FIRST, NOW, LAST)
    for since, until in ((FIRST, NOW), (NOW, LAST), (FIRST, LAST), (FIRST, FIRST), (LAST, LAST))
]


def put(world: World, spec: dict[str, Any], status: dict[str, Any]) -> None:
    """As it stands in the API server."""
    written = world.schedules.put("bad")
    fields = ScheduleSpec.model_validate({**written.spec.to_dict(), **spec})
    told = {key: fields.time_rule if value == "RULE" else value for key, value in status.items()}
    world.schedules.stored["bad"] = written.changed(spec=fields, status=ScheduleStatus.model_validate(told))


@pytest.mark.parametrize(
    ("spec", "status"), [({}, each) for each in STATUSES] + [(each, {}) for each in SPECS]
)
async def test_a_schedule_with_times_that_nobody_can_have_seen_holds_up_no_other(
    world: World, spec: dict[str, Any], status: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """G1: the others fire in time, and AstraBox can still change that one."""
    walked = 0
    between = Timeline.between

    def counting(self: Timeline, start: Any, end: Any) -> Any:
        nonlocal walked
        for due in between(self, start, end):
            walked += 1
            assert walked < 5000, "a walk over years"
            yield due

    monkeypatch.setattr(Timeline, "between", counting)
    world.schedules.put("good")
    put(world, spec, status)
    operator = world.operator()
    operator.see()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:40"))
    world.provider("astrabox-2", at("12:00:50"))
    for now in ("12:00:35", "12:01:01", "12:01:30", "12:02:01", "12:02:30"):
        await operator.at(at(now))
        await operator.write_status()
        operator.see()
    assert world.due_names("good") == ["12:01", "12:02"]
    stored = world.schedules.stored["bad"]
    for enabled in (True, False):
        replaced(stored, world.now, world.now, enabled=enabled)


@pytest.mark.parametrize("last", [LATER, LAST])
async def test_what_is_told_as_skipped_in_the_future_is_not_believed(world: World, last: str) -> None:
    """G1: the schedule itself fires, and its status is put right."""
    put(world, {}, skipped(last, FIRST))
    operator = world.operator()
    operator.see()
    await operator.at(at("12:01:01"))
    await operator.write_status()
    assert world.due_names("bad") == ["12:01"]
    assert world.schedules.stored["bad"].status.skipped is None


def test_doubt_since_ever_keeps_what_may_still_fire(world: World) -> None:
    put(world, earlier(FIRST, NOW) | {"activeSince": NOW}, skipped(NOW, FIRST))
    kept = replaced(world.schedules.stored["bad"], at("12:01"), at("12:01"), enabled=True)
    assert kept is not None
    assert at("12:01") - kept[0].active_until < MAX_CATCH_UP_WINDOW


async def test_a_run_of_year_1_holds_up_no_other_orphan(world: World) -> None:
    """RE-01: created by hand, it is beyond the window and nobody was there."""
    operator = world.operator()
    run = RunInvocation.model_validate(
        {
            "metadata": ObjectMeta(name="a-00010101t0000z").model_dump(by_alias=True),
            "spec": {"deploymentId": "a", "trigger": "schedule", "dueTime": FIRST, "payload": "{}"},
        }
    )
    world.runs.put(run)
    assert await orphans_of(operator).settle(at("12:15")) == 1
    assert world.runs.stored["a-00010101t0000z"].status.phase == Phase.CANCELLED
