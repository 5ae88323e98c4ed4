from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.connect import ConnectSettings


@pytest.fixture
async def api(crds_installed: None, admin_kubeconfig: Path, namespace: str) -> AsyncIterator[SchedulerApi]:
    """The administrator's client in the test's namespace, its clock set by one answer."""
    api = await open_api(ConnectSettings(kubeconfig=str(admin_kubeconfig)), namespace)
    await api.discovery.published_schema()
    yield api
    await api.aclose()
