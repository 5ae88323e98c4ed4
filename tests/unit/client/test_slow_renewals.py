"""Renewals of a Lease by an API server that answers late, on a loop whose time passes by waiting only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast

import pytest

from astrabox_scheduler_client import lease_keeper
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_client.errors import AlreadyExists, Conflict, NotFound, Unreachable
from astrabox_scheduler_client.lease_keeper import LeaseKeeper
from astrabox_scheduler_client.leases import Leases
from astrabox_scheduler_crds.lease import LEASE_DURATION_SECONDS, Lease
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.server_clock import ServerClock

T = TypeVar("T")
LIMIT = 4.0
"""Seconds after which one call is given up."""
RELEASE = 2.0
"""Seconds that the release itself may take."""


class InHand(asyncio.SelectorEventLoop):
    """Nothing is waited for: the clock is set forward instead."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 1000.0
        selector = cast(Any, self)._selector
        look = selector.select

        def select(timeout: float | None = None) -> Any:
            self.seconds += timeout or 0.0
            return look(0)

        selector.select = select

    def time(self) -> float:
        return self.seconds


class Late:
    """The Leases of a namespace: each call is carried out after half of `seconds`, and answered after all."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.stored: dict[str, Lease] = {}
        self.calls: list[str] = []
        self.lost = 0
        """So many answers get lost, of writes that are carried out."""
        self._version = 0

    async def get(self, name: str) -> Lease:
        return await self._answer("get", lambda: self._found(name))

    async def create(self, lease: Lease) -> ObjectMeta:
        def act() -> ObjectMeta:
            if lease.metadata.name in self.stored:
                raise AlreadyExists("there", status=409)
            return self._put(lease)

        return await self._answer("create", act)

    async def replace(self, lease: Lease) -> ObjectMeta:
        def act() -> ObjectMeta:
            if self._found(lease.metadata.name).metadata.resource_version != lease.metadata.resource_version:
                raise Conflict("changed", status=409)
            return self._put(lease)

        return await self._answer("replace", act)

    def touch(self, name: str) -> None:
        """Somebody writes it."""
        self._put(self.stored[name])

    def _found(self, name: str) -> Lease:
        if name not in self.stored:
            raise NotFound("gone", status=404)
        return self.stored[name]

    def _put(self, lease: Lease) -> ObjectMeta:
        self._version += 1
        metadata = lease.metadata.changed(uid="u", resource_version=str(self._version))
        self.stored[lease.metadata.name] = lease.changed(metadata=metadata)
        return metadata

    async def _answer(self, call: str, act: Callable[[], T]) -> T:
        self.calls.append(call)
        try:
            async with asyncio.timeout(LIMIT):  # as the transport does it
                await asyncio.sleep(self.seconds / 2)
                try:
                    answer = act()
                finally:
                    await asyncio.sleep(self.seconds / 2)
        except TimeoutError:
            raise Unreachable("late", reason="Timeout") from None
        if self.lost and call != "get":
            self.lost -= 1
            raise Unreachable("cut", reason="Cut", ambiguous=True)
        return answer


Story = Callable[[LeaseKeeper, Late], Coroutine[Any, Any, None]]


def play(monkeypatch: pytest.MonkeyPatch, story: Story, seconds: float) -> None:
    """Run it with a Lease that has just been stored, and an API server that takes `seconds` from then on."""
    with asyncio.Runner(loop_factory=InHand) as runner:
        loop = runner.get_loop()
        monkeypatch.setattr(lease_keeper, "monotonic", loop.time)
        clock = ServerClock(wall=loop.time, monotonic=loop.time)
        keeper, leases = LeaseKeeper(ConnectSettings(), "x", "provider", "me", clock=clock), Late(0.0)

        async def whole() -> None:
            await keeper._renew(cast(Leases, leases))
            leases.seconds = seconds
            leases.calls.clear()
            await story(keeper, leases)

        runner.run(whole())


@pytest.mark.parametrize("seconds", [1.5, 3.0, 3.7, 3.9])
def test_after_a_lost_answer_the_lease_is_held_again(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """G4: else others see it renewed for ever, and assign runs to a process that never begins one."""

    async def story(keeper: LeaseKeeper, leases: Late) -> None:
        run_out = asyncio.get_running_loop().time() + LEASE_DURATION_SECONDS
        await asyncio.sleep(5.0)
        leases.lost = 1
        await keeper._try_to_renew(cast(Leases, leases))
        lapses = []
        for _ in range(2):
            await asyncio.sleep(keeper._pause())
            await keeper._try_to_renew(cast(Leases, leases))
            lapses += [keeper.lapses] if keeper.held() else []
        assert asyncio.get_running_loop().time() > run_out, "what was stored before says nothing any more"
        assert keeper.held()
        assert (keeper.name, set(leases.stored)) == ("me", {"me"}), "the process has not stood still"
        in_time = 4 * seconds < LEASE_DURATION_SECONDS  # that renewal of three calls, and the next one of one
        assert len(set(lapses)) == 1 or not in_time, "once it is held, it stays so"

    play(monkeypatch, story, seconds)


async def _begun(leases: Late, calls: int, renewing: asyncio.Task[None]) -> None:
    while len(leases.calls) < calls:
        assert not renewing.done()
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("calls", [1, 2, 3])
def test_a_stop_waits_for_one_call_of_a_renewal(monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    """G10: `release` ends within its bound, wherever the renewal is."""

    async def story(keeper: LeaseKeeper, leases: Late) -> None:
        leases.touch("me")
        renewing = asyncio.create_task(keeper._try_to_renew(cast(Leases, leases)))
        await _begun(leases, calls, renewing)
        begun = asyncio.get_running_loop().time()
        keeper._stopping.set()
        await renewing
        await keeper._give_up(cast(Leases, leases))
        assert asyncio.get_running_loop().time() - begun <= LIMIT + RELEASE
        assert leases.calls[:4] == [*["replace", "get", "replace"][:calls], "replace"]

    play(monkeypatch, story, 3.9)


@pytest.mark.parametrize(("calls", "stop"), [(1, True), (2, True), (2, False)])
def test_former_leases_hold_up_neither_a_stop_nor_the_next_renewal(
    monkeypatch: pytest.MonkeyPatch, calls: int, *, stop: bool
) -> None:
    """A process that stood still gives its former Lease up by the way, which may take three calls."""

    async def story(keeper: LeaseKeeper, leases: Late) -> None:
        await asyncio.sleep(LEASE_DURATION_SECONDS)
        leases.touch("me")
        renewing = asyncio.create_task(keeper._try_to_renew(cast(Leases, leases)))
        await _begun(leases, calls, renewing)
        assert keeper.name == "me-2", "it stood still"
        begun = asyncio.get_running_loop().time()
        if stop:
            keeper._stopping.set()
        await renewing
        if stop:
            await keeper._give_up(cast(Leases, leases))
        assert asyncio.get_running_loop().time() - begun <= LIMIT + (RELEASE if stop else 0.0)

    play(monkeypatch, story, 3.0)
