"""What is cancelled, what is deleted, and what must stay."""

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from astrabox_scheduler_client.errors import ApiError, Forbidden, ServerError, TooManyRequests, Unreachable
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.firing import CATCH_UP_WINDOW
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.recovery import Orphan
from astrabox_scheduler_crds.run import Phase, RunInvocation, RunSpec
from astrabox_scheduler_operator.orphans import Orphans
from astrabox_scheduler_operator.retention import MAX_REFUSED, Retention
from tests.unit.operator.world import START, Operator, World, at, finished

HOUR = timedelta(hours=1)


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
    with pytest.raises(ServerError):
        await orphans_of(operator).settle(at("12:15"))
    phases = [each.status.phase for each in world.runs.stored.values()]
    assert phases.count(Phase.CANCELLED) == 3


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
