"""Operators that get nothing through: who leaves its share, who stays, and that somebody always tries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random

import pytest

from astrabox_scheduler_client.errors import (
    ApiError,
    Unreachable,
)
from astrabox_scheduler_client.transport import DEFAULT_TIMEOUT
from astrabox_scheduler_crds.lease import LEASE_DURATION_SECONDS
from astrabox_scheduler_operator.burst import FIRST_RETRY
from astrabox_scheduler_operator.patience import (
    FIRST_STAYS_SECONDS,
    GOT_ON_SECONDS,
    PAUSE_SECONDS,
    STEP_DOWN_SECONDS,
    Patience,
)
from astrabox_scheduler_operator.share import TRY_AGAIN_SECONDS
from tests.unit.operator.room import SEEN_AFTER, Member, Room, down, latest, play, slow_during

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
