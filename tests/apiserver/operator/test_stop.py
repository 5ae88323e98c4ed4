"""How long the end of an operator takes at most: what a pod's grace period rests on."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_operator.app import STOP_SECONDS
from tests.apiserver.operator.scenery import bind_role, eventually, process, put_provider, put_schedule
from tests.apiserver.provider.door import Door, kubeconfig_through, server_of
from tools.controlplane import Cluster

EXIT_SECONDS = 3.0
"""For Python to end when the last part has."""


async def test_a_stop_is_bounded_while_the_api_server_answers_nothing(
    control_plane: Cluster, api: SchedulerApi, namespace: str, tmp_path: Path
) -> None:
    """Connections stay and nothing comes back: each part takes all the time that it is given."""
    kubeconfig = control_plane.service_account_kubeconfig(namespace, "operator")
    bind_role(control_plane, namespace)
    await put_provider(api)
    door = Door(server_of(kubeconfig))
    try:
        through = kubeconfig_through(kubeconfig, tmp_path / "kubeconfig", door.url, namespace)
        async with process(through, namespace) as operator:
            await put_schedule(api, "a")
            await eventually(partial(has_fired, api))
            with door.silent():
                begun = time.monotonic()
                assert await operator.stop() == 0
                took = time.monotonic() - begun
    finally:
        door.end()
    assert operator.told("was not released and will run out"), "the door was not shut in time"
    assert took <= STOP_SECONDS + EXIT_SECONDS


async def has_fired(api: SchedulerApi) -> bool:
    return bool(await api.runs.list_for_deployment("a"))
