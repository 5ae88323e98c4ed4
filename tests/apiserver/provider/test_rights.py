"""Rights that are taken away while a provider runs: what waits for them says so, and goes on with them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from astrabox.seams.scheduler import SchedulerUnavailable
from astrabox_scheduler_client.api import open_api
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_crds.permissions import PROVIDER_PERMISSIONS
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from astrabox_scheduler_kubernetes.settings import PREFIX
from tests.apiserver.provider.door import kubeconfig_through
from tests.apiserver.provider.handlers import Instant, rule
from tests.apiserver.provider.scenery import Place, true, until
from tests.apiserver.provider.test_configure import account, grant
from tools.controlplane import Cluster


class Rights:
    """Those of the account of a provider that runs."""

    def __init__(self, cluster: Cluster, place: Place, kubeconfig: Path) -> None:
        self._cluster = cluster
        self._place = place
        self._kubeconfig = kubeconfig

    async def without(self, *taken: str) -> None:
        """All but these, as `verb resource`; returns once the API server goes by it."""
        left = tuple(each for each in PROVIDER_PERMISSIONS if f"{each.verb} {each.resource}" not in taken)
        assert len(left) == len(PROVIDER_PERMISSIONS) - len(taken)
        grant(self._cluster, self._place.namespace, left)
        own = await open_api(ConnectSettings(str(self._kubeconfig)), self._place.namespace)

        async def known() -> bool:
            return set(await own.access.denied(PROVIDER_PERMISSIONS)) == {*PROVIDER_PERMISSIONS} - {*left}

        try:
            await until(known)
        finally:
            await own.aclose()


@asynccontextmanager
async def running(
    cluster: Cluster, place: Place, tmp_path: Path
) -> AsyncIterator[tuple[KubernetesSchedulerProvider, Rights]]:
    own = Path(account(cluster, place.namespace)[f"{PREFIX}KUBECONFIG"])
    through = kubeconfig_through(own, tmp_path / "own", place.door.url, place.namespace)
    rights = Rights(cluster, place, own)
    await rights.without()
    async with place.running(Instant(), KUBECONFIG=str(through)) as provider:
        yield provider, rights


def told(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    """Lines that an operator of AstraBox sees, with this text."""
    shown = [each.getMessage() for each in caplog.records if each.levelno >= logging.INFO]
    return [line for line in shown if text in line]


async def test_states_that_may_not_be_saved_are_told_and_their_runs_go_on_with_the_right(
    control_plane: Cluster, place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Such runs are `Queued` without an attempt, which looks like waiting for a slot."""
    caplog.set_level(logging.INFO)
    async with running(control_plane, place, tmp_path) as (provider, rights):
        await rights.without("patch runinvocations/status")
        runs = [await provider.enqueue("d", {}, trigger="manual") for _ in range(3)]
        await until(lambda: true(told(caplog, "cannot be saved")))
        (line,) = told(caplog, "cannot be saved")
        assert 'cannot patch resource "runinvocations/status"' in line
        assert "astrabox.serviceAccounts" in line
        assert {await place.phase(run.run_id) for run in runs} == {"Queued"}
        await rights.without()
        for run in runs:
            await place.until_phase(run.run_id, "Succeeded")
        assert len(told(caplog, "cannot be saved")) == 1
        assert len(told(caplog, "the states of runs can be saved again")) == 1


async def test_runs_that_may_be_listed_and_not_watched_are_tried_with_pauses_and_told_once(
    control_plane: Cluster, place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(control_plane, place, tmp_path) as (provider, rights):
        await rights.without("watch runinvocations")
        calls = place.recorded(provider)
        place.door.cut()  # a watch that has begun goes on without the right
        await until(lambda: true(told(caplog, 'cannot watch resource "runinvocations"')))
        calls.clear()
        await until(lambda: true(calls.count("GET runinvocations") >= 8))
        assert len(told(caplog, 'cannot watch resource "runinvocations"')) == 1
        await rights.without()
        run = await provider.enqueue("d", {}, trigger="manual")
        await place.until_phase(run.run_id, "Succeeded")
        await until(lambda: true(told(caplog, "runs can be watched again")))


async def test_a_schedule_that_may_not_be_saved_tells_its_user_not_to_try_again(
    control_plane: Cluster, place: Place, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(control_plane, place, tmp_path) as (provider, rights):
        await rights.without("create deploymentschedules")
        with pytest.raises(SchedulerUnavailable, match=r"was not saved.*lacks a right.*does not help"):
            await provider.apply(rule())
        (line,) = told(caplog, "The schedule was not saved: ")
        assert 'cannot create resource "deploymentschedules"' in line
        await rights.without()
        await provider.apply(rule())
