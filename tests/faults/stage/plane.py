"""The control plane of fault runs: every write is noted, and its ports stay its own while it is away."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.definitions import install_definitions
from tests.faults.stage.audit import audit_flags
from tests.faults.stage.clock import find_library
from tests.faults.stage.ports import steady_ports
from tests.faults.stage.proxies import PROGRAM
from tools.controlplane import ControlPlane, ExternalCluster, ensure_binaries


class OwnPlane(ControlPlane):
    """One that this process has started; whoever ends its parts starts them again."""

    def __init__(self) -> None:
        super().__init__(apiserver_flags=audit_flags, choose_ports=steady_ports)

    @property
    def audit_folder(self) -> Path:
        """Where the audit log is."""
        return self.directory

    def lent(self) -> dict[str, str]:
        """What another process needs to use it."""
        return {
            "kubeconfig": str(self.kubeconfig),
            "etcd_url": self.etcd_url,
            "audit_folder": str(self.audit_folder),
        }


class BorrowedPlane(ExternalCluster):
    """One that another process has started, and that other tests use: nobody may end its parts."""

    def __init__(self, lent: Mapping[str, str]) -> None:
        super().__init__(Path(lent["kubeconfig"]), OwnPlane.context)
        self.etcd_url = lent["etcd_url"]
        self.audit_folder = Path(lent["audit_folder"])


Plane = OwnPlane | BorrowedPlane


def ensure_programs() -> None:
    """Build or find all that fault runs need. Raises ControlPlaneError or ClockError."""
    find_library()
    ensure_binaries()
    ensure_binaries((PROGRAM,))


@contextmanager
def own_plane() -> Iterator[OwnPlane]:
    """A control plane with our resources."""
    with OwnPlane() as plane:
        install_definitions(plane)
        yield plane


@contextmanager
def planes_to_lend(count: int) -> Iterator[str]:
    """So many, for processes that are given this text."""
    with ExitStack() as running:
        yield json.dumps([running.enter_context(own_plane()).lent() for _ in range(count)])


def borrowed_plane(text: str, borrower: int) -> BorrowedPlane:
    """The one of these for the borrower of this number, not opened yet."""
    planes: Sequence[Mapping[str, str]] = json.loads(text)
    return BorrowedPlane(planes[borrower % len(planes)])
