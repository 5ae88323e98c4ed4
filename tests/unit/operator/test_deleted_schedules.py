"""What AstraBox has deleted: how long its objects stay."""

from datetime import datetime, timedelta
from typing import Any

from astrabox_scheduler_crds.deletion import DELETED_KEPT, deleted
from astrabox_scheduler_crds.firing import CATCH_UP_WINDOW
from astrabox_scheduler_crds.lease import Lease
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_operator.retention import Retention
from tests.unit.operator.world import START, Operator, World


class NoLeases:
    async def list(self) -> list[Lease]:
        return []

    async def delete(self, name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        raise AssertionError(name)


def retention_of(operator: Operator) -> Retention:
    return Retention(
        runs=operator.world.runs,
        leases=NoLeases(),
        schedules=operator.world.schedules,
        attendance=operator.attendance,
        metrics=operator.metrics,
        idle=operator.firing.idle,
        keep=3,
        window=CATCH_UP_WINDOW,
    )


async def test_what_is_left_of_deleted_schedules_goes_when_no_older_list_can_bring_them_back(
    world: World,
) -> None:
    operator = world.operator()
    retention = retention_of(operator)
    for name, age in {"old": DELETED_KEPT, "young": DELETED_KEPT - timedelta(seconds=1)}.items():
        put_deleted(world, name, START - age)
    put_deleted(world, "by-hand", START - timedelta(hours=1), payload='{"p":1}')
    put_deleted(world, "on-again", START - timedelta(hours=1), enabled=True)
    world.schedules.put("off", enabled=False, payload="{}")
    await retention.prune(START)
    assert set(world.schedules.stored) == {"young", "by-hand", "on-again", "off"}


async def test_a_schedule_made_anew_since_the_list_is_not_deleted(world: World) -> None:
    operator = world.operator()
    retention = retention_of(operator)
    put_deleted(world, "a", START - timedelta(hours=1))
    listed = await world.schedules.list_deleted()
    world.schedules.put("a", enabled=True)

    async def older() -> list[DeploymentSchedule]:
        return listed

    world.schedules.list_deleted = older  # type: ignore[method-assign]
    await retention.prune(START)
    assert set(world.schedules.stored) == {"a"}


def put_deleted(world: World, name: str, at: datetime, **spec: Any) -> None:
    """One that AstraBox deleted at this time, and what somebody has made of it since."""
    old = world.schedules.put(name)
    tombstone = deleted(name, old, at)
    world.schedules._store(tombstone.changed(spec=tombstone.spec.changed(**spec)))
