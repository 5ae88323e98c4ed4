"""Fixtures that more than one rung needs."""

from pathlib import Path

import pytest

from tools.controlplane import Cluster

MANIFESTS = Path(__file__).resolve().parent.parent / "crds" / "manifests"


@pytest.fixture(scope="session")
def crds_installed(control_plane: Cluster) -> None:
    """Our CustomResourceDefinitions, served."""
    control_plane.kubectl("apply", "-f", str(MANIFESTS))
    control_plane.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(MANIFESTS))
