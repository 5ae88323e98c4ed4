"""Operators whose lists of Leases fail, while their own are renewed."""

from __future__ import annotations

import pytest

from astrabox_scheduler_crds.lease import LEASE_DURATION_SECONDS
from astrabox_scheduler_operator.patience import (
    FIRST_STAYS_SECONDS,
    PAUSE_SECONDS,
    STEP_DOWN_SECONDS,
)
from astrabox_scheduler_operator.share import TRY_AGAIN_SECONDS
from tests.unit.operator.room import SEEN_AFTER, Member, Room, down, latest, play, slow_during

BLIND_AFTER = LEASE_DURATION_SECONDS + STEP_DOWN_SECONDS
"""From the last list to the end of patience; the first by name waits longer."""


@pytest.mark.parametrize("blind", ["op-a", "op-b"])
async def test_who_keeps_its_lease_and_sees_nobody_leaves_its_share_to_those_that_were_there(
    blind: str,
) -> None:
    """G1: its lists fail and its renewals do not, so the others count it as live, and it fires nothing."""
    room = Room()
    members = [Member(room, name, slow_during(), reads=False) for name in ("op-a", "op-b")]
    (cut,) = (each for each in members if each.base == blind)
    cut.lists = slow_during((100.0, 400.0))
    went: list[float] = []

    def note() -> None:
        if down(cut) and not went:
            went.append(room.now)

    await play(room, members, 390, note)
    assert down(cut)
    assert BLIND_AFTER <= went[0] - 99.0 <= BLIND_AFTER + FIRST_STAYS_SECONDS + 2
    assert [each.step_downs() for each in members if each is not cut] == [0]
    assert latest(room) <= went[0] - 120.0 + SEEN_AFTER + 1
    assert {item[1] for item, fired in room.due.items() if fired is None or fired > item[1]} == {120}
    await play(room, members, 100, note)
    assert not down(cut)
    assert cut.held()
    assert cut.step_downs() == 1


async def test_who_sees_nobody_and_has_seen_nobody_stays() -> None:
    room = Room()
    member = Member(room, "op-a", slow_during(), reads=False)
    member.lists = slow_during((100.0, 400.0))
    await play(room, [member], 395)
    assert member.step_downs() == 0
    assert member.held()
    await play(room, [member], 10)
    assert all(fired is not None for fired in room.due.values())


async def test_when_nobody_sees_anybody_the_first_list_brings_them_back() -> None:
    """None of them could fire meanwhile; each goes on listing, and is back in seconds."""
    room = Room()
    members = [Member(room, name, slow_during(), reads=False) for name in ("op-a", "op-b")]
    for each in members:
        each.lists = slow_during((100.0, 400.0))
    await play(room, members, 398)
    assert not any(each.held() for each in members)
    await play(room, members, 5)
    assert any(each.held() for each in members)
    assert all(fired is not None for fired in room.due.values())
    await play(room, members, int(PAUSE_SECONDS + TRY_AGAIN_SECONDS) + 5)
    assert all(each.held() for each in members)


async def test_an_outage_for_everybody_makes_nobody_blind() -> None:
    """The Lease runs out as early as what was seen of the others."""
    room = Room()
    members = [Member(room, name, slow_during(), reads=False) for name in ("op-a", "op-b")]
    for each in members:
        each.lists = slow_during((100.0, 400.0))
        held = each.held
        each.held = lambda held=held: held() and not 113 <= room.now < 401  # type: ignore[method-assign,misc]
    await play(room, members, 600)
    assert [each.step_downs() for each in members] == [0, 0]
