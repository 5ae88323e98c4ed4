"""The client on a real API server, in a namespace of the test's own."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.connect import ConnectSettings


@pytest.fixture
def settings(admin_kubeconfig: Path) -> ConnectSettings:
    return ConnectSettings(kubeconfig=str(admin_kubeconfig))


@pytest.fixture
async def api(crds_installed: None, settings: ConnectSettings, namespace: str) -> AsyncIterator[SchedulerApi]:
    api = await open_api(settings, namespace)
    yield api
    await api.aclose()


class Eventually:
    """Asks again until the answer is yes, and fails after a bound; nothing rests on how long it takes."""

    async def __call__(self, question: Callable[[], Awaitable[bool]], within: float = 20.0) -> None:
        async with asyncio.timeout(within):
            while not await question():  # noqa: ASYNC110 - the event is in another process
                await asyncio.sleep(0.02)


@pytest.fixture
def eventually() -> Eventually:
    return Eventually()
