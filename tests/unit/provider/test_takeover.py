"""Two who meet at one orphan: the version that was read decides."""

from datetime import timedelta
from typing import Any

import pytest

from astrabox_scheduler_client.errors import Conflict
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL, ROLE_LABEL
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.presence import Presence
from astrabox_scheduler_crds.run import Phase, RunInvocation
from astrabox_scheduler_kubernetes.intake import Term
from astrabox_scheduler_kubernetes.takeover import Takeover
from astrabox_scheduler_kubernetes.telling import Told
from tests.unit.provider.memory_runs import Clock, MemoryRuns, World

NOBODY = Presence((), frozenset())
TERM = Term("me", 0)


class Taken:
    def __init__(self) -> None:
        self.runs: list[str] = []

    def holds(self, name: str) -> bool:
        return False

    def take(self, run: RunInvocation, term: Term) -> None:
        assert run.metadata.labels[ASSIGNEE_LABEL] == term.assignee
        self.runs.append(run.metadata.name)

    def take_name(self, meta: Any, term: Term) -> None:
        raise AssertionError


def takeover(runs: MemoryRuns, taken: Taken) -> Takeover:
    return Takeover(runs, None, Clock(), taken, current=lambda: TERM, told=Told())  # type: ignore[arg-type]


async def test_orphan_that_another_took_meanwhile_is_left_to_it() -> None:
    world, taken = World(), Taken()
    world.run()
    world.runs.label("r", **{ASSIGNEE_LABEL: "lost"})
    get = world.runs.get

    async def get_late(name: str) -> RunInvocation:
        run = await get(name)
        world.runs.label("r", **{ASSIGNEE_LABEL: "other"})
        return run

    world.runs.get = get_late  # type: ignore[method-assign]
    with pytest.raises(Conflict):
        await takeover(world.runs, taken)._settle("r", NOBODY, TERM)
    assert taken.runs == []


async def test_orphan_is_adopted() -> None:
    world, taken = World(), Taken()
    world.run()
    world.runs.label("r", **{ASSIGNEE_LABEL: "lost"})
    await takeover(world.runs, taken)._settle("r", NOBODY, TERM)
    assert taken.runs == ["r"]


async def test_orphan_of_a_process_that_may_still_be_there_is_left_for_now() -> None:
    """G1: a Lease that may be renewed yet proves nothing about a due time after its last renewal."""
    world, taken = World(), Taken()
    run = world.run(scheduled=True)
    world.runs.label("r", **{ASSIGNEE_LABEL: "lost"})
    assert run.spec.due_time is not None
    renewed = run.spec.due_time - timedelta(seconds=1)
    lease = Lease(
        metadata=ObjectMeta(name="other", labels={ROLE_LABEL: "provider"}),
        spec=LeaseSpec(holder_identity="other", acquire_time=renewed, renew_time=renewed),
    )
    await takeover(world.runs, taken)._settle("r", Presence((lease,), frozenset({"other"})), TERM)
    assert (taken.runs, world.log, world.status.phase) == ([], [], Phase.QUEUED)
    later = lease.changed(spec=lease.spec.changed(renew_time=run.spec.due_time))
    await takeover(world.runs, taken)._settle("r", Presence((later,), frozenset({"other"})), TERM)
    assert taken.runs == ["r"]
