import asyncio
import logging
from datetime import UTC, datetime

import pytest

from astrabox_scheduler_client.errors import ServerError
from astrabox_scheduler_client.leases import Leases
from astrabox_scheduler_client.presence import PresencePoller
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.presence import PresenceObserver
from astrabox_scheduler_crds.server_clock import ServerClock


class Store(Leases):
    """What each list says, one after the other; the last one is repeated."""

    def __init__(self, *answers: list[str] | ServerError) -> None:
        self.answers = list(answers)
        self.selectors: list[str] = []
        self.listed = asyncio.Event()

    async def list(self, label_selector: str = "") -> list[Lease]:
        self.selectors.append(label_selector)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not self.answers[1:]:
            self.listed.set()
        if isinstance(answer, ServerError):
            raise answer
        metadata = [ObjectMeta(name=name, labels={labels.ROLE_LABEL: "provider"}) for name in answer]
        spec = LeaseSpec(holder_identity="h", acquire_time=datetime.now(UTC), renew_time=datetime.now(UTC))
        return [Lease(metadata=each, spec=spec) for each in metadata]


async def test_a_refresh_tells_the_observer_and_the_age() -> None:
    seconds = 100.0
    clock = ServerClock(monotonic=lambda: seconds)
    observer, store = PresenceObserver(), Store(["a"])
    poller = PresencePoller(store, observer, clock, ("provider", "operator"))
    assert poller.age() is None
    await poller.refresh()
    assert observer.presence("provider", seconds).live == {"a"}
    assert store.selectors == [f"{labels.ROLE_LABEL} in (provider,operator)"]
    seconds += 3
    assert poller.age() == 3


async def test_a_refresh_that_fails_raises_and_keeps_what_is_known() -> None:
    observer = PresenceObserver()
    poller = PresencePoller(Store(["a"], ServerError("down")), observer, ServerClock())
    await poller.refresh()
    age = poller.age()
    with pytest.raises(ServerError):
        await poller.refresh()
    assert len(observer.presence("provider", 0).leases) == 1
    assert age is not None
    assert (poller.age() or 0) >= age


async def test_polling_goes_on_over_errors_and_logs_each_change_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    down = ServerError("down")
    store, observer = Store(["a"], down, down, down, ["a", "b"], down, ["c"], ["c"]), PresenceObserver()
    poller = PresencePoller(store, observer, ServerClock(), period=0)
    task = asyncio.create_task(poller.run())
    await store.listed.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [each.name for each in (lease.metadata for lease in observer.presence("provider", 0).leases)] == [
        "c"
    ]
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO", "WARNING", "INFO"]


async def test_a_first_list_that_is_refused_is_asked_for_again(caplog: pytest.LogCaptureFixture) -> None:
    """WA-15: a process that starts while the API server is busy waits instead of ending."""
    down = ServerError("down")
    observer = PresenceObserver()
    poller = PresencePoller(Store(down, down, ["a"]), observer, ServerClock(), period=0)
    await poller.first()
    assert observer.presence("provider", 0).leases
    assert [record.levelname for record in caplog.records] == ["WARNING"]


async def test_it_tells_since_when_there_is_no_gap() -> None:
    """FI-14: after an outage of the API server the others have had no time to renew yet."""
    seconds = 100.0
    clock = ServerClock(monotonic=lambda: seconds)
    poller = PresencePoller(Store(["a"]), PresenceObserver(), clock)
    assert poller.steady_for() == 0.0
    for seconds in (100.0, 102.0, 104.0, 111.0):  # noqa: B007 - the clock above reads it
        await poller.refresh()
    assert poller.steady_for() == 11.0
    seconds = 122.0
    assert poller.steady_for() == 0.0, "the lists have failed for 11 s"
    await poller.refresh()
    seconds = 125.0
    assert poller.steady_for() == 3.0
