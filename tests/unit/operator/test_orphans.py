"""What is cancelled because nobody will start it, and what is not."""

from collections.abc import Mapping
from typing import Any

import pytest

from astrabox_scheduler_client.errors import AccessDenied, ApiError, Forbidden, NotServed, ServerError
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.firing import CATCH_UP_WINDOW
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.recovery import Orphan
from astrabox_scheduler_crds.run import Phase, RunInvocation, RunSpec
from astrabox_scheduler_operator.orphans import Orphans
from tests.unit.operator.world import Operator, World, at


def run(name: str, due: str | None, **marks: str) -> RunInvocation:
    trigger = "schedule" if due else "manual"
    spec = RunSpec(deployment_id="a", trigger=trigger, due_time=at(due) if due else None, payload="{}")
    return RunInvocation(
        metadata=ObjectMeta(name=name, labels={labels.DEPLOYMENT_LABEL: "a", **marks}), spec=spec
    )


def orphans_of(operator: Operator) -> Orphans:
    return Orphans(operator.world.runs, operator.attendance, operator.metrics, CATCH_UP_WINDOW)


async def test_a_run_of_the_tail_is_cancelled_and_nothing_else(world: World) -> None:
    """Killed at 12:00:50, due 12:00 and 12:01: the second would start hours late when AstraBox comes back."""
    operator = world.operator()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:50"))
    world.runs.put(run("a-20260601t1200z", "12:00", **{labels.ASSIGNEE_LABEL: "astrabox-1"}))
    world.runs.put(run("a-20260601t1201z", "12:01", **{labels.ASSIGNEE_LABEL: "astrabox-1"}))
    started = run("a-20260601t1202z", "12:02")
    world.runs.put(started.changed(status=started.status.changed(phase=Phase.RUNNING, attempts=1)))
    world.runs.put(run("a-20260601t120300000z-aaaaaaaa", None))
    assert await orphans_of(operator).settle(at("12:15")) == 1
    phases = {name: each.status.phase for name, each in world.runs.stored.items()}
    assert phases == {
        "a-20260601t1200z": Phase.QUEUED,
        "a-20260601t1201z": Phase.CANCELLED,
        "a-20260601t1202z": Phase.RUNNING,
        "a-20260601t120300000z-aaaaaaaa": Phase.QUEUED,
    }
    failed = {c.type: (c.status, c.reason) for c in world.runs.stored["a-20260601t1201z"].status.conditions}
    assert failed["Failed"][1] == "NoAstraBoxProcess"


async def test_what_somebody_was_there_for_costs_no_read(world: World) -> None:
    operator = world.operator()
    world.runs.put(run("a-20260601t1201z", "12:01"))
    world.runs.get = None  # type: ignore[method-assign,assignment]
    world.now = at("12:15")
    assert await orphans_of(operator).settle(at("12:15")) == 0
    assert operator.attendance.refreshes == 0


async def test_processes_that_came_later_keep_nothing(world: World) -> None:
    """G1: nobody was there at its due time, whoever is there now."""
    operator = world.operator()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:50"))
    world.provider("astrabox-2", at("12:02"))
    world.runs.put(run("a-20260601t1201z", "12:01", **{labels.ASSIGNEE_LABEL: "astrabox-2"}))
    assert await orphans_of(operator).settle(at("12:15")) == 1


async def test_a_provider_that_a_fresh_list_shows_stops_it(world: World) -> None:
    """WA-12: a decision that cancels rests on a consistent read."""
    operator = world.operator()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:50"))
    world.runs.put(run("a-20260601t1201z", "12:01"))
    world.on_refresh = lambda: world.provider("astrabox-1", at("06:00"))
    world.now = at("12:15")
    assert await orphans_of(operator).settle(at("12:15")) == 0
    assert world.runs.stored["a-20260601t1201z"].status.phase == Phase.QUEUED


async def test_a_run_that_may_still_be_wanted_is_left_alone(world: World) -> None:
    """G1: its process may be cut off alone: it comes back in the window, and the run starts late."""
    operator = world.operator()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:50"))
    world.runs.put(run("a-20260601t1201z", "12:01"))
    orphans = orphans_of(operator)
    assert await orphans.settle(at("12:11")) == 0
    assert await orphans.settle(at("12:11:01")) == 1


async def test_a_conflict_is_left_to_the_next_time(world: World) -> None:
    operator = world.operator()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:50"))
    world.runs.put(run("a-20260601t1201z", "12:01"))
    world.runs.conflict_once.add("a-20260601t1201z")
    orphans = orphans_of(operator)
    assert await orphans.settle(at("12:15")) == 0
    assert await orphans.settle(at("12:16")) == 1


async def test_while_the_leases_were_not_seen_for_long_nothing_is_cancelled(world: World) -> None:
    """WA-12: after an outage of the API server every Lease looks dead until it is renewed."""
    operator = world.operator()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:50"))
    world.runs.put(run("a-20260601t1201z", "12:01"))
    operator.attendance.is_steady = False
    orphans = orphans_of(operator)
    assert await orphans.settle(at("12:15")) == 0
    operator.attendance.is_steady = True
    assert await orphans.settle(at("12:15:15")) == 1


async def test_a_run_that_cannot_be_told_yet_is_looked_at_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = world.operator()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:50"))
    world.runs.put(run("a-20260601t1201z", "12:01"))
    orphans = orphans_of(operator)
    with monkeypatch.context() as patched:
        patched.setattr("astrabox_scheduler_operator.orphans.settle_orphan", lambda *_: Orphan.WAIT)
        assert await orphans.settle(at("12:11:05")) == 0
    assert await orphans.settle(at("12:11:20")) == 1


async def test_a_run_that_cannot_be_cancelled_holds_up_no_other(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    operator = world.operator()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:50"))
    for minute in (1, 2):
        world.runs.put(run(f"a-20260601t120{minute}z", f"12:0{minute}"))
    real = world.runs.patch_status

    async def patch(name: str, status: Mapping[str, Any], version: str | None) -> ObjectMeta:
        if name == "a-20260601t1201z":
            raise Forbidden("a policy refuses", status=403)
        return await real(name, status, version)

    world.runs.patch_status = patch  # type: ignore[method-assign,assignment]
    orphans = orphans_of(operator)
    assert await orphans.settle(at("12:15")) == 1
    assert await orphans.settle(at("12:16")) == 0
    assert len([each for each in caplog.messages if "cannot be cancelled" in each]) == 1


@pytest.mark.parametrize("error", [AccessDenied("403"), NotServed("404"), ServerError("500")])
async def test_what_refuses_them_all_gives_none_of_them_up(world: World, error: ApiError) -> None:
    """The right comes back, or the definitions: the run is cancelled then."""
    operator = world.operator()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:50"))
    world.runs.put(run("a-20260601t1201z", "12:01"))
    orphans, real = orphans_of(operator), world.runs.patch_status

    async def refused(*_: Any) -> ObjectMeta:
        raise error

    world.runs.patch_status = refused  # type: ignore[method-assign,assignment]
    assert await orphans.settle(at("12:15")) == 0
    world.runs.patch_status = real  # type: ignore[method-assign]
    assert await orphans.settle(at("12:16")) == 1


async def test_one_orphan_that_cannot_be_read_holds_up_no_other(world: World) -> None:
    """FI-14: it is the first of them, and stays so."""
    operator = world.operator()
    world.provider("astrabox-1", at("06:00"), until=at("12:00:50"))
    for number in range(4):
        world.runs.put(run(f"a{number}-20260601t1201z", "12:01"))
    real = world.runs.get

    async def get(name: str) -> RunInvocation:
        if name.startswith("a0"):
            raise ServerError("HTTP 500", status=500)
        return await real(name)

    world.runs.get = get  # type: ignore[method-assign]
    assert await orphans_of(operator).settle(at("12:15")) == 3
    phases = [each.status.phase for each in world.runs.stored.values()]
    assert phases.count(Phase.CANCELLED) == 3
