"""What is deleted, and what must stay."""

import asyncio
from datetime import datetime, timedelta

import pytest

from astrabox_scheduler_client.errors import ApiError, Forbidden, ServerError, TooManyRequests, Unreachable
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.firing import CATCH_UP_WINDOW
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import Phase
from astrabox_scheduler_operator.retention import MAX_REFUSED, Retention
from tests.unit.operator.test_orphans import run
from tests.unit.operator.world import START, Operator, World, at, finished

HOUR = timedelta(hours=1)


class Leases:
    def __init__(self, *leases: Lease) -> None:
        self.stored = {each.metadata.name: each for each in leases}

    async def list(self) -> list[Lease]:
        return list(self.stored.values())

    async def delete(self, name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        assert (uid, resource_version) == (f"uid-{name}", "7"), "deletes carry preconditions"
        del self.stored[name]


def lease(name: str, role: str, renewed: datetime) -> Lease:
    metadata = ObjectMeta(
        name=name, uid=f"uid-{name}", resource_version="7", labels={labels.ROLE_LABEL: role}
    )
    return Lease(metadata=metadata, spec=LeaseSpec(acquire_time=renewed - HOUR, renew_time=renewed))


def retention_of(operator: Operator, keep: int, *leases: Lease) -> tuple[Retention, Leases]:
    store = Leases(*leases)
    retention = Retention(
        runs=operator.world.runs,
        leases=store,
        schedules=operator.world.schedules,
        attendance=operator.attendance,
        metrics=operator.metrics,
        idle=operator.firing.idle,
        keep=keep,
        window=CATCH_UP_WINDOW,
    )
    return retention, store


def history(world: World, phases: list[Phase | str], newest: datetime = START) -> None:
    for number, phase in enumerate(phases):
        created = newest - HOUR * number
        each = run(f"r{number}", None)
        metadata = each.metadata.changed(creation_timestamp=created)
        world.runs.put(finished(each.changed(metadata=metadata), phase))  # type: ignore[arg-type]


async def test_ten_runs_become_three_whatever_their_state_and_in_spite_of_conflicts(world: World) -> None:
    """RT-01: limit 3; every terminal state belongs to a bucket, an unfinished or unknown one to none."""
    operator = world.operator()
    done = [Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED] * 3
    history(world, [*done, "Paused", Phase.RUNNING], newest=START - HOUR)
    world.runs.conflict_once = set(world.runs.stored)
    retention, _ = retention_of(operator, 3)
    assert await retention.prune(START) == 0
    assert await retention.prune(START) == 6
    assert set(world.runs.stored) == {"r0", "r1", "r2", "r9", "r10"}
    assert operator.sample("runs_deleted_total") == 6


async def test_a_young_run_stays_whatever_the_limit(world: World) -> None:
    """OO-02: younger than twice the window: its name still guards its due time."""
    operator = world.operator()
    history(world, [Phase.SUCCEEDED] * 2, newest=START)
    world.runs.stored["r1"] = world.runs.stored["r1"].changed(
        metadata=world.runs.stored["r1"].metadata.changed(creation_timestamp=START - 2 * CATCH_UP_WINDOW)
    )
    retention, _ = retention_of(operator, 1)
    assert await retention.prune(START - timedelta(seconds=1)) == 0
    assert await retention.prune(START) == 1


async def test_a_day_of_runs_stays_below_limit_times_schedules(world: World) -> None:
    """RT-04: 64 schedules every minute for a simulated day: pruned each minute, the count is bounded."""
    operator = world.operator()
    for number in range(4):
        world.schedules.put(f"s{number}")
    operator.see()
    retention, _ = retention_of(operator, 5)
    now, most = at("12:01"), 0
    for _ in range(120):
        await operator.at(now)
        for name, each in list(world.runs.stored.items()):
            if not each.status.finished:
                metadata = each.metadata.changed(creation_timestamp=now)
                world.runs.put(finished(each.changed(metadata=metadata), Phase.SUCCEEDED))
            assert name
        await retention.prune(now)
        most = max(most, len(world.runs.stored))
        now += timedelta(minutes=1)
    assert most <= 4 * 21, "what is younger than twice the window, and the limit"


async def test_only_one_operator_prunes(world: World) -> None:
    pruned = []
    for each in (world.operator("op-1"), world.operator("op-2")):
        history(world, [Phase.SUCCEEDED] * 5, newest=START - HOUR)
        pruned.append(await retention_of(each, 1)[0].prune(START))
    assert sorted(pruned) == [0, 4]


async def test_pruning_waits_for_the_burst(world: World) -> None:
    """FI-11: deletes are of lower priority than firing."""
    operator = world.operator()
    history(world, [Phase.SUCCEEDED] * 5, newest=START - HOUR)
    operator.firing.idle.clear()
    task = asyncio.create_task(retention_of(operator, 1)[0].prune(START))
    for _ in range(20):
        await asyncio.sleep(0)
    assert world.runs.deleted == []
    operator.firing.idle.set()
    assert await task == 4


AWAY: list[ApiError] = [
    Unreachable("no answer", reason="Timeout"),
    TooManyRequests("busy", status=429),
    ServerError("down", status=503),
]


@pytest.mark.parametrize("error", AWAY, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("what", ["runs", "leases"])
async def test_an_error_of_a_delete_is_raised_as_itself(world: World, error: ApiError, what: str) -> None:
    """A group of errors would end the process: what goes round waits for the API server."""
    operator = world.operator()
    history(world, [Phase.SUCCEEDED] * 9, newest=START - HOUR)
    retention, store = retention_of(
        operator, 1, *(lease(f"p{number}", "provider", START - HOUR) for number in range(9))
    )
    tries = []

    async def fails(name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        tries.append(name)
        await asyncio.sleep(0)
        raise error

    (world.runs if what == "runs" else store).delete = fails  # type: ignore[method-assign]
    with pytest.raises(type(error)) as raised:
        await retention.prune(START)
    assert raised.value is error
    assert len(tries) <= 6, "no more than were in flight when the third had failed"
    assert operator.sample("runs_deleted_total") == (0 if what == "runs" else 8)


async def test_one_delete_that_fails_holds_up_no_other(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """FI-14: the oldest run cannot be deleted for a while; what follows it goes, and so do the Leases."""
    operator = world.operator()
    history(world, [Phase.SUCCEEDED] * 9, newest=START - HOUR)
    retention, store = retention_of(operator, 1, lease("old", "provider", START - HOUR))
    real = world.runs.delete
    bad = min(world.runs.stored.values(), key=lambda run: str(run.metadata.creation_timestamp)).metadata.name

    async def delete(name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        if name == bad:
            raise ServerError("HTTP 500", status=500)
        await real(name, uid, resource_version)

    world.runs.delete = delete  # type: ignore[method-assign]
    for _ in range(3):
        await retention.prune(START)
    assert len(world.runs.stored) == 2
    assert store.stored == {}
    assert len([each for each in caplog.records if "cannot be deleted" in each.getMessage()]) == 1


async def test_runs_that_may_not_be_deleted_hold_up_no_other_and_are_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    operator = world.operator()
    history(world, [Phase.SUCCEEDED] * 40, newest=START - HOUR)
    retention, store = retention_of(operator, 1, lease("old", "provider", START - HOUR))
    real, tries = world.runs.delete, []

    async def delete(name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        tries.append(name)
        if int(name[1:]) >= 30:
            raise Forbidden("a policy refuses", status=403)
        await real(name, uid, resource_version)

    world.runs.delete = delete  # type: ignore[method-assign]
    assert await retention.prune(START) == 29
    assert await retention.prune(START) == 0
    assert store.stored == {}, "the Leases go all the same"
    assert len([each for each in caplog.messages if "cannot be deleted" in each]) == 1
    tries.clear()
    world.runs.delete = real  # type: ignore[method-assign]
    assert await retention.prune(START) == 10
    assert await retention.prune(START) == 0


async def test_a_role_that_forbids_all_deletes_is_not_asked_for_each(world: World) -> None:
    operator = world.operator()
    history(world, [Phase.SUCCEEDED] * 100, newest=START - HOUR)
    retention, _ = retention_of(operator, 1)
    tries = []

    async def forbidden(name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        tries.append(name)
        raise Forbidden("no right", status=403)

    world.runs.delete = forbidden  # type: ignore[method-assign]
    assert await retention.prune(START) == 0
    assert len(tries) <= MAX_REFUSED + 4


@pytest.mark.parametrize("assignee", [None, "somebody"])
async def test_a_lease_that_proves_the_due_time_of_an_unfinished_run_stays(
    world: World, assignee: str | None
) -> None:
    """G1: AstraBox was there at 10:00 and is gone since; its run waits, and is not to be cancelled."""
    operator = world.operator()
    marks = {labels.ASSIGNEE_LABEL: assignee} if assignee else {}
    world.runs.put(run("a-20260601t1000z", "10:00", **marks))
    world.runs.put(run("b-20260601t1130z", "11:30"))
    world.runs.put(run("c-20260601t080000000z-aaaaaaaa", None))
    retention, store = retention_of(
        operator,
        3,
        lease("before", "provider", at("09:59:59")),
        lease("at", "provider", at("10:00")),
        lease("later", "provider", at("11:00")),
        lease("op-0", "operator", at("10:30")),
        lease("op-1", "operator", at("11:30")),
    )
    await retention.prune(START)
    assert set(store.stored) == {"at", "later", "op-1"}
    for each in ("a-20260601t1000z", "b-20260601t1130z"):
        del world.runs.stored[each]
    await retention.prune(START)
    assert set(store.stored) == {"op-1"}


async def test_runs_are_only_asked_for_when_a_lease_may_go(world: World) -> None:
    operator = world.operator()
    retention, store = retention_of(
        operator, 3, lease("young", "provider", START), lease("op-0", "operator", START - 2 * HOUR)
    )
    world.runs.list_unfinished_metadata = None  # type: ignore[method-assign,assignment]
    await retention.prune(START)
    assert set(store.stored) == {"young", "op-0"}


@pytest.mark.parametrize("used", [False, True])
async def test_leases_that_nobody_needs_are_deleted(world: World, used: bool) -> None:
    operator = world.operator()
    old, young = START - HOUR, START - CATCH_UP_WINDOW
    if used:
        world.runs.put(run("a-20260601t1000z", "10:00", **{labels.ASSIGNEE_LABEL: "old"}))
    retention, store = retention_of(
        operator,
        3,
        lease("old", "provider", old),
        lease("young", "provider", young),
        lease("astrabox-1", "provider", old),
        lease("op-1", "operator", old),
        lease("op-0", "operator", old - HOUR),
        lease("foreign", "something-else", old),
    )
    await retention.prune(START)
    assert set(store.stored) == {"young", "astrabox-1", "op-1", "foreign"} | ({"old"} if used else set())


async def test_the_newest_operator_lease_stays(world: World) -> None:
    """That an operator was installed once stays visible."""
    operator = world.operator("op-9")
    retention, store = retention_of(
        operator, 3, lease("op-1", "operator", START - HOUR), lease("op-2", "operator", START - 2 * HOUR)
    )
    await retention.prune(START)
    assert set(store.stored) == {"op-1"}
