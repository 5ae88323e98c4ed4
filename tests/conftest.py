"""A real API server for the rungs that need one: one for the session, one namespace for each test."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from astrabox_scheduler_crds.crd import lacking_fields
from astrabox_scheduler_crds.labels import API_VERSION, RUN_PLURAL, SCHEDULE_PLURAL
from tools.controlplane import (
    Cluster,
    ControlPlane,
    ControlPlaneError,
    KubectlError,
    ensure_binaries,
    open_cluster,
)

MANIFESTS = Path(__file__).resolve().parent.parent / "crds" / "manifests"


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
    control_plane.kubectl("apply", "-f", str(MANIFESTS))
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(MANIFESTS))
    # Served at once, published a moment later; what checks the fields reads what is published.
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(KubectlError):
            document = json.loads(control_plane.kubectl("get", "--raw", f"/openapi/v3/apis/{API_VERSION}"))
            # Until its cache is filled the API server answers 429 to lists, "storage is (re)initializing".
            for plural in (SCHEDULE_PLURAL, RUN_PLURAL):
                control_plane.kubectl("get", "--raw", f"/apis/{API_VERSION}/{plural}?limit=1")
            if not lacking_fields(document):
                return
    raise TimeoutError("the API server does not serve our CRDs with all fields within 30 s")
