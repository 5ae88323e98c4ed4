"""The life of a process's Lease on a real API server."""

import asyncio
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_client.errors import ConnectError, Forbidden, NotFound, Unreachable
from astrabox_scheduler_client.lease_keeper import LeaseKeeper
from astrabox_scheduler_client.presence import PresencePoller
from astrabox_scheduler_crds.lease import Lease
from astrabox_scheduler_crds.presence import PresenceObserver
from tools.controlplane import Cluster

CHILD = Path(__file__).with_name("lease_child.py")
Eventually = Callable[..., "asyncio.Future[None]"]


@asynccontextmanager
async def kept(
    settings: ConnectSettings,
    api: SchedulerApi,
    *,
    identity: str = "me",
    duration: float = 3.0,
    period: float = 0.5,
    loop_dead_after: float = 120.0,
) -> AsyncIterator[LeaseKeeper]:
    keeper = LeaseKeeper(
        settings,
        api.namespace,
        "provider",
        identity,
        duration=duration,
        period=period,
        loop_dead_after=loop_dead_after,
    )
    await keeper.start(20)
    try:
        yield keeper
    finally:
        await keeper.release()
        assert f"lease {identity}" not in {thread.name for thread in threading.enumerate()}


def interval(lease: Lease) -> tuple[datetime, datetime]:
    assert lease.spec.acquire_time is not None
    assert lease.spec.renew_time is not None
    return lease.spec.acquire_time, lease.spec.renew_time


async def test_it_is_created_renewed_and_released(
    settings: ConnectSettings, api: SchedulerApi, eventually: Eventually
) -> None:
    async with kept(settings, api) as keeper:
        assert (keeper.held(), keeper.lapses, keeper.name) == (True, 0, "me")
        first = await api.leases.get("me")
        assert (first.role, first.spec.holder_identity, first.spec.lease_duration_seconds) == (
            "provider",
            "me",
            3,
        )
        assert abs(interval(first)[0] - datetime.now(UTC)) < timedelta(seconds=30)

        async def renewed_twice() -> bool:
            return interval(await api.leases.get("me"))[1] > interval(first)[1] + timedelta(seconds=0.6)

        await eventually(renewed_twice)
        before = api.clock.now()
    last = await api.leases.get("me")
    assert not keeper.held()
    assert last.released
    assert interval(last)[0] == interval(first)[0]
    assert interval(last)[1] >= before - timedelta(seconds=1)
    await keeper.release()  # again is no error


async def test_renewals_follow_the_whole_multiples_of_the_period(
    settings: ConnectSettings, api: SchedulerApi, eventually: Eventually
) -> None:
    seen: set[datetime] = set()
    async with kept(settings, api, duration=4, period=1):

        async def renewed_three_times() -> bool:
            seen.add(interval(await api.leases.get("me"))[1])
            return len(seen) >= 4

        await eventually(renewed_three_times)
    after_the_first = sorted(seen)[1:]
    assert all(each.microsecond < 900_000 for each in after_the_first)
    assert len({each.replace(microsecond=0) for each in after_the_first}) == len(after_the_first)


async def test_a_stopping_process_is_marked_at_once(
    settings: ConnectSettings, api: SchedulerApi, eventually: Eventually
) -> None:
    """Not at the next renewal: until then it would be assigned runs."""
    async with kept(settings, api, duration=60, period=30) as keeper:
        keeper.drain()

        async def marked() -> bool:
            return (await api.leases.get("me")).draining

        await eventually(marked)
        assert keeper.held()


async def test_a_blocked_event_loop_does_not_lose_it(settings: ConnectSettings, api: SchedulerApi) -> None:
    """RE-05: a handler that blocks the loop for longer than the Lease lasts."""
    async with kept(settings, api, duration=1.0, period=0.4) as keeper:
        time.sleep(2.5)  # noqa: ASYNC251 - the point of the test
        assert (keeper.held(), keeper.lapses) == (True, 0)


async def test_an_event_loop_dead_for_long_loses_it_and_gets_a_new_one(
    settings: ConnectSettings, api: SchedulerApi, eventually: Eventually
) -> None:
    async with kept(settings, api, duration=1.0, period=0.25, loop_dead_after=0.3) as keeper:

        async def lost() -> bool:
            return not keeper.held()

        await eventually(lost)
        gap_begun = api.clock.now() - timedelta(seconds=1)

        async def held_again() -> bool:
            keeper.beat()
            return keeper.held() and (await api.leases.get("me")).released

        await eventually(held_again)
        assert (keeper.lapses, keeper.name) == (1, "me-2")
        old, new = await api.leases.get("me"), await api.leases.get("me-2")
    assert interval(old)[1] <= gap_begun + timedelta(seconds=1)
    assert interval(new)[0] > interval(old)[1] + timedelta(seconds=0.5)
    assert (await api.leases.get("me-2")).released


async def test_deleted_by_hand_it_comes_back_with_its_acquire_time(
    settings: ConnectSettings, api: SchedulerApi, eventually: Eventually
) -> None:
    async with kept(settings, api) as keeper:
        first = await api.leases.get("me")
        await api.leases.delete("me")

        async def there() -> bool:
            try:
                return (await api.leases.get("me")).metadata.uid != first.metadata.uid
            except NotFound:
                return False

        await eventually(there)
        assert (keeper.held(), keeper.lapses, keeper.name) == (True, 0, "me")
        again = await api.leases.get("me")
    assert interval(again)[0] == interval(first)[0]
    assert again.role == "provider"


async def test_changed_by_hand_it_is_written_over(
    settings: ConnectSettings, api: SchedulerApi, eventually: Eventually
) -> None:
    async with kept(settings, api) as keeper:
        lease = await api.leases.get("me")
        spec = lease.spec.changed(
            holder_identity="somebody", acquire_time=datetime(2020, 1, 1, 0, 0, 0, 1, UTC)
        )
        for _ in range(20):  # a renewal may come in between
            lease = await api.leases.get("me")
            try:
                await api.leases.replace(lease.changed(spec=spec))
            except Exception:  # noqa: BLE001
                continue
            break

        async def ours() -> bool:
            return (await api.leases.get("me")).spec.holder_identity == "me"

        await eventually(ours)
        assert (keeper.held(), keeper.lapses) == (True, 0)


async def test_a_name_of_an_earlier_life_is_left_alone(settings: ConnectSettings, api: SchedulerApi) -> None:
    async with kept(settings, api):
        pass
    old = await api.leases.get("me")
    async with kept(settings, api) as keeper:
        assert (keeper.name, keeper.lapses) == ("me-2", 0)
    assert (await api.leases.get("me")).metadata.resource_version == old.metadata.resource_version


@pytest.mark.parametrize("at_once", [True, False])
async def test_given_up_it_may_be_taken_anew(
    settings: ConnectSettings, api: SchedulerApi, *, at_once: bool
) -> None:
    """A Lease of another name, so that the first one keeps its interval; held as the first was."""
    keeper = LeaseKeeper(settings, api.namespace, "operator", "me", duration=3.0, period=0.5)
    await keeper.start(20)
    with pytest.raises(RuntimeError, match="kept already"):
        await keeper.start(20)
    await keeper.release()
    assert not keeper.held()
    old = await api.leases.get("me")
    assert old.released
    if not at_once:
        await asyncio.sleep(3.5)
    await keeper.start(20)
    assert keeper.held()
    assert keeper.name == "me-2"
    taken = await api.leases.get("me-2")
    assert interval(taken)[0] >= interval(old)[1]
    assert await api.leases.get("me") == old
    await keeper.release()
    assert (await api.leases.get("me-2")).released
    assert "lease me" not in {thread.name[:8] for thread in threading.enumerate()}


async def test_a_stopped_process_does_not_believe_in_it_when_it_goes_on(
    admin_kubeconfig: Path, api: SchedulerApi, eventually: Eventually
) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(CHILD), str(admin_kubeconfig), api.namespace, "child",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    stdin, stdout = child.stdin, child.stdout

    async def ask() -> list[str]:
        stdin.write(b"?\n")
        return (await stdout.readline()).decode().split()

    try:
        assert await stdout.readline() == b"started\n"
        assert await ask() == ["True", "0", "child"]
        child.send_signal(signal.SIGSTOP)
        stopped = api.clock.now()

        async def long_stopped() -> bool:
            return api.clock.now() - stopped > timedelta(seconds=2.5)

        await eventually(long_stopped)
        frozen = await api.leases.get("child")
        stdin.write(b"?\n")  # the first thing that it reads when it goes on
        child.send_signal(signal.SIGCONT)
        first = (await stdout.readline()).decode().split()
        # Either it says that it lost it, or it has a new one by now; never that nothing happened.
        assert first in (["False", "1", "child"], ["False", "1", "child-2"], ["True", "1", "child-2"])

        async def held() -> bool:
            return await ask() == ["True", "1", "child-2"]

        await eventually(held)
        stdin.close()
        assert await child.wait() == 0
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    assert interval(await api.leases.get("child"))[1] == interval(frozen)[1]
    assert interval(await api.leases.get("child-2"))[0] > stopped + timedelta(seconds=2)


async def test_a_start_that_fails_says_why_and_leaves_nothing(
    settings: ConnectSettings, api: SchedulerApi, control_plane: Cluster, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        config = json.loads(control_plane.kubectl("config", "view", "--raw", "-o", "json"))
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{taken.getsockname()[1]}"
        nobody = tmp_path / "refused.kubeconfig"
        nobody.write_text(json.dumps(config))
        powerless = control_plane.service_account_kubeconfig(api.namespace, "powerless")
        for kubeconfig, error in (
            (tmp_path / "none", ConnectError),
            (nobody, Unreachable),
            (powerless, Forbidden),
        ):
            keeper = LeaseKeeper(ConnectSettings(str(kubeconfig)), api.namespace, "provider", "me")
            with pytest.raises(error):
                await keeper.start(20)
            assert not keeper.held()
            assert "lease me" not in {thread.name for thread in threading.enumerate()}


async def test_a_start_that_hangs_is_given_up_in_time(
    control_plane: Cluster, tmp_path: Path, api: SchedulerApi
) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen()
        config = json.loads(control_plane.kubectl("config", "view", "--raw", "-o", "json"))
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{deaf.getsockname()[1]}"
        kubeconfig = tmp_path / "deaf.kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        keeper = LeaseKeeper(ConnectSettings(str(kubeconfig)), "x", "provider", "me", duration=2, period=0.5)
        begun = time.monotonic()
        with pytest.raises(Unreachable):
            await keeper.start(0.2)
        assert time.monotonic() - begun < 10
        assert "lease me" not in {thread.name for thread in threading.enumerate()}


async def test_an_observer_sees_it_live_and_then_released(
    settings: ConnectSettings, api: SchedulerApi
) -> None:
    observer = PresenceObserver()
    poller = PresencePoller(api.leases, observer, api.clock)
    async with kept(settings, api):
        await poller.refresh()
        assert observer.presence("provider", api.clock.monotonic()).live == {"me"}
        during = api.clock.now()
    await poller.refresh()
    presence = observer.presence("provider", api.clock.monotonic())
    assert presence.live == frozenset()
    assert presence.covers(during - timedelta(milliseconds=1)) or interval(presence.leases[0])[0] > during
    assert not presence.covers(api.clock.now() + timedelta(seconds=5))


def test_a_period_too_long_to_keep_it_is_refused() -> None:
    with pytest.raises(ValueError, match="renewed at least twice"):
        LeaseKeeper(ConnectSettings(), "x", "provider", "me", duration=5, period=3)
