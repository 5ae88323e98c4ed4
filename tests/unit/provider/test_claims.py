"""Claims under which no call is made, and runs of a time before ours: what must not be started blindly."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from astrabox_scheduler_client.errors import Forbidden, Invalid, Unreachable
from astrabox_scheduler_client.presence import PresencePoller
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL, ROLE_LABEL
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.presence import PresenceObserver
from astrabox_scheduler_crds.recovery import Orphan
from astrabox_scheduler_crds.run import Phase, RunStatus
from astrabox_scheduler_crds.transitions import with_attempt, with_release
from astrabox_scheduler_kubernetes.takeover import Providers
from tests.unit.provider.memory_runs import CLAIM, NOW, WHOLE, World

FREED = "save phase,releases"


def claims_late(world: World, then: Any = None) -> None:
    """The claim is stored, its answer takes so long that the schedule is to be looked at again."""
    save = world.desk.recorder.save

    async def late(*arguments: Any) -> Any:
        world.desk.recorder.save = save  # type: ignore[method-assign]
        saved = await save(*arguments)
        world.clock.at += timedelta(seconds=4)
        if then is not None:
            await then()
        return saved

    world.desk.recorder.save = late  # type: ignore[method-assign, assignment]


@pytest.mark.parametrize("taken_by_another", [False, True])
async def test_claim_without_a_call_is_taken_back_when_the_lease_lapses(taken_by_another: bool) -> None:
    """G5: the next process must not take the run for started; it is asked again whether it may start."""
    world = World()

    async def lapse() -> None:
        world.lapses = 1
        if taken_by_another:
            world.runs.label("r", **{ASSIGNEE_LABEL: "other"})

    claims_late(world, lapse)
    world.look_faults = [Unreachable("away")]
    attempt = world.attempt(world.run(scheduled=True, age=3.0))
    assert await attempt.carry_out() is None
    assert attempt.lost
    world.runs.faults = [Unreachable("away"), Forbidden("403"), Unreachable("lost", ambiguous=True)]
    await attempt.take_back()
    assert world.log == [CLAIM, FREED]
    assert not world.status.started
    assert (world.status.attempts, world.status.releases) == (1, 1)
    world.lapses, world.enabled = 0, False
    if not taken_by_another:
        await world.attempt(world.runs.stored["r"]).carry_out()
        assert (world.status.phase, world.seen) == (Phase.CANCELLED, [])


async def test_claim_that_another_has_gone_on_with_is_not_taken_back() -> None:
    world = World()

    async def lapse() -> None:
        world.lapses = 1
        run = world.runs.stored["r"]
        world.runs.put(run.changed(status=with_attempt(run.status, "other", NOW)))

    claims_late(world, lapse)
    world.enabled = True
    attempt = world.attempt(world.run(scheduled=True, age=3.0))
    await attempt.carry_out()
    await attempt.take_back()
    assert world.log == [CLAIM]
    assert (world.status.attempts, world.status.releases) == (2, 0)


@pytest.mark.parametrize("fault", [Invalid("422"), ValueError("a fault of ours")])
async def test_claim_is_taken_back_whatever_ends_the_attempt(fault: Exception) -> None:
    world = World()

    async def fail() -> None:
        raise fault

    claims_late(world, fail)
    attempt = world.attempt(world.run(scheduled=True, age=0.0))
    try:
        await attempt.carry_out()
    except ValueError:
        attempt.lost = True  # as the dispatcher does
    assert attempt.lost
    await attempt.take_back()
    assert world.log == [CLAIM, FREED]
    assert not world.status.started


@pytest.mark.parametrize("arrives", ["at once", "late"])
async def test_claim_that_was_cut_off_by_a_stop_is_handed_over_unstarted(arrives: str) -> None:
    """The stop cancelled the write of the claim, which is carried out all the same, now or later."""
    world = World()
    run = world.run(scheduled=True)
    patch, unassign = world.runs.patch_status, world.desk.recorder.unassign
    held: list[Any] = []

    async def cut(*arguments: Any) -> Any:
        world.runs.patch_status = patch  # type: ignore[method-assign]
        held.append(arguments)
        if arrives == "at once":
            await patch(*held.pop())
        raise asyncio.CancelledError

    async def late(*arguments: Any) -> Any:
        if held:
            await patch(*held.pop())
        return await unassign(*arguments)

    world.runs.patch_status = cut  # type: ignore[method-assign, assignment]
    world.desk.recorder.unassign = late  # type: ignore[method-assign, assignment]
    attempt = world.attempt(run)
    with pytest.raises(asyncio.CancelledError):
        await attempt.carry_out()
    await attempt.hand_over()
    assert world.log == [CLAIM, FREED, f"label {ASSIGNEE_LABEL}"]
    assert not world.status.started


async def test_claim_on_top_of_one_taken_back_is_confirmed() -> None:
    """Another takes its claim back after we took the run for started: what counts is the newer state."""
    world = World()
    stale = world.run(
        scheduled=True, age=60.0, status=with_attempt(RunStatus(), "other", NOW - timedelta(minutes=1))
    )
    fresh = stale.changed(status=with_release(stale.status, called=False))
    world.runs.put(fresh)
    world.enabled = False
    await world.attempt(stale).carry_out()
    assert (world.status.phase, world.seen) == (Phase.CANCELLED, [])


async def test_run_due_before_our_time_waits_until_it_is_settled() -> None:
    """G1: a killed process looks alive for a while; what became due then must not be started blindly."""
    world = World()
    world.acquired = NOW
    world.settled = [Orphan.WAIT, Orphan.ADOPT]
    run = world.run(scheduled=True)
    assert await world.attempt(run).carry_out() == NOW
    assert world.log == []
    assert await world.attempt(run).carry_out() is None
    assert world.log == WHOLE


@pytest.mark.parametrize("why", ["due since", "started", "manual"])
async def test_other_runs_ask_nobody(why: str) -> None:
    """`settled` has no answers: a question would fail."""
    world = World()
    world.acquired = NOW - timedelta(minutes=5) if why == "due since" else NOW
    status = RunStatus(phase=Phase.RUNNING, attempts=1, started_at=NOW) if why == "started" else None
    await world.attempt(world.run(scheduled=why != "manual", status=status)).carry_out()
    assert world.status.phase == Phase.SUCCEEDED


class Leases:
    """Those of others; each list may bring another state."""

    def __init__(self, *states: list[Lease]) -> None:
        self.states = list(states)

    async def list(self, _: str) -> list[Lease]:
        return self.states.pop(0)


def lease(renewed: timedelta, version: str) -> Lease:
    """One acquired an hour ago, last renewed at NOW plus `renewed`."""
    spec = LeaseSpec(holder_identity="a", acquire_time=NOW - timedelta(hours=1), renew_time=NOW + renewed)
    metadata = ObjectMeta(name="a", labels={ROLE_LABEL: "provider"}, resource_version=version)
    return Lease(metadata=metadata, spec=spec)


async def test_settling_lists_leases_only_without_proof() -> None:
    """Renewed since: proof. Not yet: wait, and look again, however long ago the Lease has run out."""
    world = World()
    run = world.run(scheduled=True)
    due = run.spec.due_time
    assert due is not None
    before, after = due - NOW - timedelta(seconds=2), due - NOW + timedelta(seconds=2)
    leases, observer, seconds = Leases([lease(before, "1")]), PresenceObserver(), 0.0
    world.clock.monotonic = lambda: seconds
    poller = PresencePoller(leases, observer, world.clock)  # type: ignore[arg-type]
    providers = Providers(poller, observer)

    async def settle() -> Orphan:
        return await providers.settle(run, NOW, world.clock, 2.0)

    assert await settle() is Orphan.WAIT
    assert await settle() is Orphan.WAIT, "listed a moment ago"
    seconds = 3.0
    world.clock.at += timedelta(seconds=3)
    leases.states = [[lease(after, "2")]]
    assert await settle() is Orphan.ADOPT
    seconds = 60.0
    assert await settle() is Orphan.ADOPT, "proof stays proof"
    leases.states = [[lease(before, "1")], [lease(before, "1")]]
    await poller.refresh()
    seconds = 120.0
    assert await settle() is Orphan.WAIT
