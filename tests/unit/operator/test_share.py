"""Operators that get nothing through: who leaves its share, who stays, and that somebody always tries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from random import Random

import pytest

from astrabox_scheduler_client.confirm import Confirmed
from astrabox_scheduler_client.errors import (
    AccessDenied,
    ApiError,
    ConnectError,
    Forbidden,
    Invalid,
    NotFound,
    ServerError,
    Unreachable,
)
from astrabox_scheduler_client.transport import DEFAULT_TIMEOUT
from astrabox_scheduler_crds.assignment import owner
from astrabox_scheduler_crds.lease import LEASE_DURATION_SECONDS
from astrabox_scheduler_crds.presence import Presence
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_operator.burst import FIRST_RETRY
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.patience import (
    FIRST_STAYS_SECONDS,
    GOT_ON_SECONDS,
    PAUSE_SECONDS,
    STEP_DOWN_SECONDS,
    Patience,
)
from astrabox_scheduler_operator.repeat import RETRY_SECONDS
from astrabox_scheduler_operator.share import TRY_AGAIN_SECONDS, Share
from tests.unit.operator.world import World

SEEN_AFTER = 3.0
"""Until a Lease that was taken or released is in the others' lists."""
TWO = frozenset({"op-1", "op-2"})


def over(
    seconds: float,
    own: str = "op-2",
    operators: frozenset[str] = TWO,
    answered_ago: float | None = None,
    held: Callable[[float], bool] = lambda _: True,
) -> bool:
    """Whether patience ends when something has been stuck for so long."""
    patience = Patience()
    for second in range(int(seconds) + 1):
        patience.look(100.0 + second, held=held(second), stuck=True)
    return patience.is_over(own, operators, answered_ago)


def test_one_lost_answer_is_no_reason_to_step_down() -> None:
    assert DEFAULT_TIMEOUT + FIRST_RETRY.total_seconds() + DEFAULT_TIMEOUT <= STEP_DOWN_SECONDS
    assert STEP_DOWN_SECONDS > LEASE_DURATION_SECONDS
    assert not over(STEP_DOWN_SECONDS - 1)
    assert over(STEP_DOWN_SECONDS)


def test_the_first_by_name_waits_longer_so_that_one_of_two_stays() -> None:
    assert not over(STEP_DOWN_SECONDS + FIRST_STAYS_SECONDS - 1, own="op-1")
    assert over(STEP_DOWN_SECONDS + FIRST_STAYS_SECONDS, own="op-1")


def test_alone_it_keeps_on_trying() -> None:
    assert not over(1000, operators=frozenset({"op-2"}))


def test_who_got_on_within_a_minute_stays() -> None:
    """A single schedule whose run nobody can create is no reason to hand over all the others."""
    assert not over(1000, answered_ago=GOT_ON_SECONDS - 1)
    assert over(1000, answered_ago=GOT_ON_SECONDS)


def test_an_outage_for_everybody_is_no_reason_to_step_down() -> None:
    """The Leases run out in it; when they are back there is time to get on."""
    assert not over(600, held=lambda second: second < LEASE_DURATION_SECONDS or second > 592)


def test_a_process_that_stood_still_has_not_waited() -> None:
    patience = Patience()
    for moment in (0.0, 1.0, 500.0, 501.0):
        patience.look(moment, held=True, stuck=True)
    assert not patience.is_over("op-2", TWO, None)


@dataclass
class Room:
    """The Leases as others see them, and what is due."""

    released_in_order: bool = True
    now: float = 0.0
    leases: dict[str, tuple[float, float]] = field(default_factory=dict)  # seen from, seen until
    due: dict[tuple[str, int], float | None] = field(default_factory=dict)  # schedule, due -> fired at

    def live(self) -> frozenset[str]:
        return frozenset(name for name, (since, until) in self.leases.items() if since <= self.now < until)


class Member:
    """One operator: its Lease, its view, and a firing that gets through or does not."""

    def __init__(self, room: Room, identity: str, well: Callable[[float], bool], *, reads: bool) -> None:
        self.room, self.base, self.well, self.reads = room, identity, well, reads
        self.number, self.holds, self.answered, self.refreshed = 0, False, None, 0
        world = World()
        world.schedules.put("probed")
        index = world.operator(identity).index
        index.upsert(world.schedules.stored["probed"], world.now)
        self.metrics = Metrics()
        self.share = Share(
            keeper=self,
            attendance=self,
            firing=self,
            confirm=self,
            index=index,
            clock=ServerClock(monotonic=lambda: room.now),
            metrics=self.metrics,
        )

    answered: float | None

    @property
    def identity(self) -> str:
        return f"{self.base}-{self.number}"

    def held(self) -> bool:
        return self.holds

    def operators(self) -> frozenset[str]:
        return self.room.live() | {self.identity}

    async def refresh(self) -> None:
        self.refreshed += 1

    def providers(self) -> Presence:
        raise NotImplementedError

    def steady(self) -> bool:
        raise NotImplementedError

    async def start(self, timeout: float) -> None:  # noqa: ASYNC109 - as the LeaseKeeper has it
        self.number += 1
        self.holds = True
        self.room.leases[self.identity] = (self.room.now + SEEN_AFTER, float("inf"))

    async def release(self) -> None:
        self.holds = False
        since, _ = self.room.leases[self.identity]
        until = SEEN_AFTER if self.room.released_in_order else LEASE_DURATION_SECONDS + SEEN_AFTER
        self.room.leases[self.identity] = (since, self.room.now + until)

    async def versions(self, names: Collection[str]) -> Confirmed:
        slow = not self.reads and not self.well(self.room.now)
        if slow and self.room.now % 2:
            raise Unreachable("late", reason="Timeout")
        return Confirmed(self.room.now - 3.0 * slow, datetime.fromtimestamp(0).astimezone(), {})

    def mine(self) -> list[tuple[str, int]]:
        operators = self.operators()
        return [
            item
            for item, fired in self.room.due.items()
            if fired is None and owner(item[0], operators) == self.identity
        ]

    def stuck(self, now: datetime) -> bool:
        return bool(self.mine())

    def wake(self) -> None:
        pass

    def fire(self) -> None:
        if self.holds and self.well(self.room.now):
            for item in self.mine():
                self.room.due[item] = self.answered = self.room.now

    def step_downs(self) -> float:
        return self.metrics.registry.get_sample_value("astrabox_scheduler_operator_step_downs_total") or 0.0


def down(member: Member) -> bool:
    return member.share.stepped_down


async def play(
    room: Room, members: list[Member], seconds: int, each: Callable[[], None] = lambda: None
) -> None:
    """Let so many seconds pass, with 12 schedules due at each whole minute."""
    for member in members:
        if not member.holds and not down(member):
            await member.start(0.0)
    for _ in range(seconds):
        room.now += 1.0
        if room.now % 60 == 0:
            room.due |= {(f"s{number}", int(room.now)): None for number in range(12)}
        for member in members:
            member.fire()
            await member.share.look()
        each()


def latest(room: Room) -> float:
    """By how much a due time was late at most; infinite if one has not fired."""
    return max(float("inf") if fired is None else fired - item[1] for item, fired in room.due.items())


def slow_during(*spans: tuple[float, float]) -> Callable[[float], bool]:
    return lambda now: not any(begin <= now < end for begin, end in spans)


async def test_a_slow_one_leaves_its_share_and_comes_back_when_it_is_well() -> None:
    room = Room()
    slow = Member(room, "op-a", slow_during((110.0, 400.0)), reads=False)
    well = Member(room, "op-b", slow_during(), reads=False)
    await play(room, [slow, well], 300)
    assert down(slow)
    assert not slow.held()
    assert slow.step_downs() == 1, "reads that are late keep it down after its pause"
    assert well.step_downs() == 0
    assert latest(room) <= STEP_DOWN_SECONDS + FIRST_STAYS_SECONDS + SEEN_AFTER + 2
    late = {item[1] for item, fired in room.due.items() if fired is None or fired > item[1]}
    assert late == {120}, "only what was due while nobody knew"
    await play(room, [slow, well], 200)
    assert not down(slow)
    assert slow.held()
    assert (slow.step_downs(), well.step_downs()) == (1, 0)


async def test_what_is_slow_for_all_leaves_one_that_tries_and_fires_at_once_when_it_is_over() -> None:
    """Two, with the same trouble at the same moment: never nobody, and no going to and fro."""
    room = Room()
    members = [Member(room, name, slow_during((110.0, 400.0)), reads=False) for name in ("op-a", "op-b")]

    def somebody() -> None:
        assert any(each.held() for each in members)

    await play(room, members, 397, somebody)
    assert [each.step_downs() for each in members] == [0, 1]
    await play(room, members, 10, somebody)
    assert all(fired is not None for fired in room.due.values()), "the one that stayed has it all"
    await play(room, members, 200, somebody)
    assert all(each.held() for each in members)


async def test_two_that_leave_in_the_same_moment_come_back_at_once() -> None:
    """The first began to wait earlier by just what it waits longer: for a moment nobody is there."""
    room = Room(released_in_order=False)
    members = [Member(room, name, slow_during((0.0, 10_000.0)), reads=False) for name in ("op-a", "op-b")]
    await play(room, members, 1)
    for each in members:
        await each.share._step_down(room.now)
    nobody = 0

    def count() -> None:
        nonlocal nobody
        nobody += not any(each.held() for each in members)

    await play(room, members, 60, count)
    assert nobody <= LEASE_DURATION_SECONDS + SEEN_AFTER
    assert all(each.refreshed == 1 for each in members), "that nobody is there rests on a fresh list"


@pytest.mark.parametrize("reads", [False, True], ids=["reads are late too", "only writes fail"])
@pytest.mark.parametrize("in_order", [True, False], ids=["released", "run out"])
@pytest.mark.parametrize("count", [2, 3])
async def test_whatever_is_slow_when_a_due_time_fires_while_one_could(
    *, count: int, in_order: bool, reads: bool
) -> None:
    """Random slowness for each: a due time is late by a bound while somebody could fire it all along."""
    gone = (0.0 if in_order else LEASE_DURATION_SECONDS) + SEEN_AFTER
    kept_by_a_slow_one = STEP_DOWN_SECONDS + FIRST_STAYS_SECONDS + gone
    bound = PAUSE_SECONDS + TRY_AGAIN_SECONDS + (count - 1) * kept_by_a_slow_one + 5
    for seed in range(4):
        random, room = Random(seed), Room(released_in_order=in_order)
        members = [
            Member(room, f"op-{number}", slow_during(*spans(random)), reads=reads) for number in range(count)
        ]
        await play(room, members, 1800)
        for (name, due), fired in room.due.items():
            times = range(due, due + int(bound) + 1)
            if times[-1] <= room.now and any(all(map(each.well, times)) for each in members):
                assert fired is not None, (seed, name, due)
                assert fired - due <= bound, (seed, name, due)


def spans(random: Random) -> list[tuple[float, float]]:
    found, now = [], 0.0
    while now < 1800:
        begin = now + random.uniform(20, 300)
        now = begin + random.uniform(5, 200)
        found.append((begin, now))
    return found


async def test_who_cannot_take_a_lease_stays_down(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    room = Room()
    member = Member(room, "op-a", slow_during(), reads=True)
    await play(room, [member], 1)
    await member.share._step_down(room.now)

    async def refused(timeout: float) -> None:  # noqa: ASYNC109
        raise Unreachable("refused", reason="NotSent")

    started, member.start = member.start, refused  # type: ignore[method-assign]
    await play(room, [member], 5)
    assert down(member)
    member.start = started  # type: ignore[method-assign]
    await play(room, [member], 5)
    assert not down(member)
    told = [record.getMessage() for record in caplog.records]
    assert told[0].startswith("stepping down")
    assert told[-1] == "taking a share again"


async def test_an_empty_room_is_only_believed_after_a_fresh_list() -> None:
    """Cut off for longer than a Lease, it sees nobody: that says nothing about the others."""
    room = Room()
    member = Member(room, "op-a", slow_during(), reads=True)
    await play(room, [member], 1)
    await member.share._step_down(room.now)

    async def away() -> None:
        raise ApiError("away")

    member.refresh = away  # type: ignore[method-assign]
    await play(room, [member], int(timedelta(minutes=3).total_seconds()))
    assert down(member)


def failing(member: Member, *errors: Exception) -> list[float]:
    """Its next starts raise these, one after the other; when it was tried."""
    started, left, tried = member.start, list(errors), []

    async def start(timeout: float) -> None:  # noqa: ASYNC109
        tried.append(asyncio.get_running_loop().time())
        if left:
            raise left.pop(0)
        await started(timeout)

    member.start = start  # type: ignore[method-assign]
    return tried


async def test_a_first_lease_that_is_not_stored_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """G1: a process that ended would be started again later and later, when the others are well."""
    caplog.set_level("INFO")
    pauses: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await real(0)

    monkeypatch.setattr("astrabox_scheduler_operator.share.asyncio.sleep", sleep)
    member = Member(Room(), "op-a", slow_during(), reads=True)
    late = Unreachable("the Lease was not stored within 4 s", reason="Timeout")
    denied = AccessDenied("cannot create leases", status=403)
    tried = failing(member, late, late, ServerError("500", status=500), ConnectError("unreadable"), denied)
    running = asyncio.create_task(member.share.run())
    while not (member.held() or running.done()):
        await real(0)
    await ended(running)
    assert len(tried) == 6
    assert pauses[:5] == [RETRY_SECONDS] * 5
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 5, "each kind once"
    assert told[0] == "no Lease can be taken, trying on: the Lease was not stored within 4 s"
    assert "bind the service account" in told[3]
    assert told[4] == "the Lease is taken"


@pytest.mark.parametrize("error", [NotFound("no namespace"), Forbidden("a policy"), Invalid("the Lease")])
async def test_a_first_lease_that_is_refused_for_good_ends_the_process(error: ApiError) -> None:
    member = Member(Room(), "op-a", slow_during(), reads=True)
    failing(member, error)
    with pytest.raises(type(error)):
        await member.share.run()


async def test_a_stop_before_there_is_a_lease_ends_at_once() -> None:
    member = Member(Room(), "op-a", slow_during(), reads=True)
    tried = failing(member, Unreachable("refused", reason="NotSent"))
    running = asyncio.create_task(member.share.run())
    while not (tried or running.done()):  # noqa: ASYNC110 - it is there after a few turns
        await asyncio.sleep(0)
    async with asyncio.timeout(1):
        await ended(running)
    assert not member.held()


async def ended(running: asyncio.Task[None]) -> None:
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
