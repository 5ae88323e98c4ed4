"""A real API server for the rungs that need one: one for the session, one namespace for each test."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.definitions import install_definitions
from tools.controlplane import (
    Cluster,
    ControlPlane,
    ControlPlaneError,
    ensure_binaries,
    open_cluster,
)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build before the first test starts its clock: a cold build takes minutes, a test has seconds."""
    wanted = any("control_plane" in getattr(item, "fixturenames", ()) for item in session.items)
    if session.config.option.collectonly or not wanted:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    try:
        if isinstance(open_cluster(), ControlPlane):
            with capture.global_and_fixture_disabled():
                ensure_binaries()
    except ControlPlaneError as error:
        raise pytest.UsageError(str(error)) from error


@pytest.fixture(scope="session")
def control_plane() -> Iterator[Cluster]:
    """The cluster of this session: ours, or the one ASTRABOX_TEST_KUBECONFIG names."""
    with open_cluster() as cluster:
        yield cluster


@pytest.fixture
def namespace(control_plane: Cluster) -> Iterator[str]:
    """A namespace of this test's own."""
    name = control_plane.create_namespace(f"test-{secrets.token_hex(4)}")
    yield name
    control_plane.discard_namespace(name)


@pytest.fixture
def admin_kubeconfig(control_plane: Cluster) -> Path:
    """Kubeconfig of an administrator."""
    return control_plane.kubeconfig


@pytest.fixture(scope="session")
def crds_installed(control_plane: Cluster) -> None:
    """Our CustomResourceDefinitions, served."""
    install_definitions(control_plane)


@pytest.fixture
def collected() -> Iterator[None]:
    """Collect at the end of the test what it may leave to the garbage collector, which then warns."""
    yield
    gc.collect()
