"""The control plane of fault runs: every write is noted, and its ports stay its own while it is away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.definitions import install_definitions
from tests.faults.stage.audit import audit_flags
from tests.faults.stage.clock import find_library
from tests.faults.stage.ports import steady_ports
from tests.faults.stage.proxies import PROGRAM
from tools.controlplane import ControlPlane, ensure_binaries


def ensure_programs() -> None:
    """Build or find all that fault runs need. Raises ControlPlaneError or ClockError."""
    find_library()
    ensure_binaries()
    ensure_binaries((PROGRAM,))


@contextmanager
def fault_plane() -> Iterator[ControlPlane]:
    """A control plane with our resources; whoever ends its parts starts them again."""
    with ControlPlane(apiserver_flags=audit_flags, choose_ports=steady_ports) as plane:
        install_definitions(plane)
        yield plane
