"""How many calls at a time: fewer for an overloaded API server, and as many as ever for one that hangs."""

import asyncio
from datetime import timedelta
from random import Random
from typing import Final

import pytest

from astrabox_scheduler_client.confirm import ScheduleConfirm
from astrabox_scheduler_client.errors import ApiError, Unreachable
from astrabox_scheduler_client.schedules import Version
from astrabox_scheduler_crds.firing import CONFIRM_MAX_AGE_SECONDS
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import RunInvocation
from tests.unit.operator.test_one_bad_answer import Reads
from tests.unit.operator.world import World, at

LATENESS: Final = "astrabox_scheduler_operator_firing_lateness_seconds"


class Overloaded(Reads):
    """Each read takes longer the more of them are under way."""

    def __init__(self, world: World) -> None:
        super().__init__(world, "")
        self.seconds, self.under_way = 0.4, 0

    async def version(self, name: str) -> Version | None:
        self.under_way, begun = self.under_way + 1, self.world.monotonic
        await asyncio.sleep(0)
        late = self.under_way * self.seconds > CONFIRM_MAX_AGE_SECONDS
        await asyncio.sleep(0)
        self.under_way -= 1
        if late:
            self.world.monotonic = max(self.world.monotonic, begun + CONFIRM_MAX_AGE_SECONDS + 0.1)
            raise Unreachable("no answer", reason="Timeout")
        return (await self.enabled_versions()).get(name)


async def test_an_overloaded_server_is_asked_for_less_at_a_time(world: World) -> None:
    """FI-14: of eight reads at a time none is answered in time, of five or fewer all are."""
    operator = world.operator()
    names = [f"s{number}" for number in range(100)]
    for name in names:
        world.schedules.put(name)
    operator.see()
    reads = Overloaded(world)
    burst = operator.firing._burst
    burst._choice._confirm = ScheduleConfirm(reads, world.clock)
    burst._choice._took = 100.0  # a list has taken too long
    world.now = at("12:01")
    for _ in range(30):
        await operator.firing.step(world.now)
        world.now += timedelta(seconds=1)
    assert len(world.runs.stored) == 100
    reads.seconds = 0.0
    for minute in (3, 4, 5):
        await operator.at(at(f"12:0{minute}"))
    assert burst._at_once == 8, "and for as much as before when that is over"


@pytest.mark.parametrize("at_once", [8, 1])
async def test_creates_that_hang_keep_no_other_schedule_from_firing(world: World, at_once: int) -> None:
    """FI-14: 40 of 100 creates take ten seconds and fail, minute after minute, the oldest first."""
    operator = world.operator()
    healthy = [f"s{number}" for number in range(60)]
    for name in [*(f"a{number}" for number in range(40)), *healthy]:
        world.schedules.put(name)
    operator.see()
    operator.firing._burst._at_once = at_once

    def hang(run: RunInvocation) -> ApiError | None:
        if run.metadata.name.startswith("s"):
            return None
        world.monotonic = max(world.monotonic, begun + 10.0)
        return Unreachable("no answer", reason="Timeout")

    world.runs.fail = hang
    world.now = at("12:01")
    while world.now < at("12:25"):
        begun = world.monotonic
        await operator.firing.step(world.now)
        world.monotonic += 0.5
        world.now += timedelta(seconds=world.monotonic - begun)
    for name in healthy:
        assert world.due_names(name)[:23] == [f"12:{minute:02}" for minute in range(1, 24)]
    in_time = operator.metrics.registry.get_sample_value(f"{LATENESS}_bucket", {"le": "30.0"})
    assert in_time is not None
    assert in_time >= 22 * len(healthy), "all but those of two minutes, in which it shows who hangs"
    assert operator.sample("create_errors_total", reason="Timeout") > 0


async def test_fewer_at_a_time_is_no_answer_to_calls_that_hang_at_random(world: World) -> None:
    """FI-14: one of several API servers hangs; that six of ten calls go to it is not for their number."""
    operator, chance = world.operator(), Random(4)
    for number in range(100):
        world.schedules.put(f"s{number}")
    operator.see()
    real = world.runs.create

    async def create(run: RunInvocation) -> ObjectMeta:
        if chance.random() > 0.6:
            return await real(run)
        for _ in range(300):
            await asyncio.sleep(0)  # the others go on meanwhile
        world.monotonic = max(world.monotonic, begun + 10.0)
        raise Unreachable("no answer", reason="Timeout")

    world.runs.create = create  # type: ignore[method-assign]
    world.now = at("12:01")
    for _ in range(10):
        begun = world.monotonic
        await operator.firing.step(world.now)
        assert operator.firing._burst._at_once == 8
        world.now += timedelta(seconds=max(1.0, world.monotonic - begun))
