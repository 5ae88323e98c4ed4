"""Operators in one room: their Leases as others see them, what is due, and time that a test lets pass."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime

from astrabox_scheduler_client.confirm import Confirmed
from astrabox_scheduler_client.errors import (
    Unreachable,
)
from astrabox_scheduler_crds.assignment import owner
from astrabox_scheduler_crds.lease import LEASE_DURATION_SECONDS
from astrabox_scheduler_crds.presence import Presence
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_operator.metrics import Metrics
from astrabox_scheduler_operator.share import Share
from tests.unit.operator.world import World

SEEN_AFTER = 3.0
"""Until a Lease that was taken or released is in the others' lists."""


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
        self.lists: Callable[[float], bool] = lambda _: True
        self.listed, self.listed_at = frozenset[str](), room.now
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

    def look_around(self) -> None:
        """As the poller does; a list that fails leaves what is known, which grows old."""
        if self.lists(self.room.now):
            self.listed, self.listed_at = self.room.live(), self.room.now

    def blind(self) -> bool:
        return self.room.now - self.listed_at > LEASE_DURATION_SECONDS

    def seen_last(self) -> frozenset[str]:
        return self.listed | {self.identity}

    def operators(self) -> frozenset[str]:
        return (frozenset() if self.blind() else self.listed) | {self.identity}

    async def refresh(self) -> None:
        self.refreshed += 1
        if not self.lists(self.room.now):
            raise Unreachable("late", reason="Timeout")
        self.look_around()

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
        return bool(self.mine()) and not self.blind()  # without a provider in sight nothing is tried

    def wake(self) -> None:
        pass

    def fire(self) -> None:
        if self.holds and self.well(self.room.now) and not self.blind():
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
            member.look_around()
            member.fire()
            await member.share.look()
        each()


def latest(room: Room) -> float:
    """By how much a due time was late at most; infinite if one has not fired."""
    return max(float("inf") if fired is None else fired - item[1] for item, fired in room.due.items())


def slow_during(*spans: tuple[float, float]) -> Callable[[float], bool]:
    return lambda now: not any(begin <= now < end for begin, end in spans)
