"""Both Helm versions and promtool, built before the first test, and a control plane of the chart's own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chart.helm import ALL_ON, Helm, Object
from tests.chart.promtool import Promtool
from tools.controlplane import ControlPlane, ControlPlaneError, ensure_binaries
from tools.controlplane.recipe import ALERTS
from tools.helm import KITS, helm_binary

CONTROLLERS = ("kube-controller-manager",)
"""Of a node's kit the one that the tests of people's rights start."""


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test starts its clock, as for the control plane."""
    asked = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    wanted = [*KITS.values()] if asked & {"helm", "newest_helm", "oldest_helm"} else []
    wanted += [ALERTS] if "promtool" in asked else []
    wanted += [CONTROLLERS] if "aggregation" in asked else []
    if session.config.option.collectonly:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            for kit in wanted:
                ensure_binaries(kit)
    except ControlPlaneError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture(scope="session", params=KITS, ids="helm-{}".format)
def helm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Each of the two versions."""
    return _of(request.param, tmp_path_factory)


@pytest.fixture(scope="module")
def rendered(helm: Helm) -> list[Object]:
    """The chart with its defaults."""
    return helm.render()


@pytest.fixture(scope="module")
def everything(helm: Helm) -> list[Object]:
    """The chart with each part of it."""
    return helm.render(ALL_ON)


@pytest.fixture(scope="session")
def newest_helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Version 4 alone, for what cannot depend on the version."""
    return _of("4", tmp_path_factory)


@pytest.fixture(scope="session")
def oldest_helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Version 3 alone."""
    return _of("3", tmp_path_factory)


@pytest.fixture
def promtool(tmp_path: Path) -> Promtool:
    """Prometheus' own reader of rules."""
    return Promtool(ensure_binaries(ALERTS) / "promtool", tmp_path)


def _of(major: str, folders: pytest.TempPathFactory) -> Helm:
    return Helm(major, helm_binary(major), folders.mktemp(f"helm-{major}"))


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[ControlPlane]:
    """One that no other test shares: CRDs come and go in it."""
    with ControlPlane() as plane:
        yield plane


@pytest.fixture
def installer(helm: Helm, own_cluster: ControlPlane) -> Helm:
    """Helm with an administrator's kubeconfig."""
    return helm.of(own_cluster.kubeconfig)
