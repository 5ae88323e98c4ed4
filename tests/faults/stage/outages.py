"""The API server and etcd taken away from everybody, and given back."""

from __future__ import annotations

import asyncio

from tests.faults.stage.journal import Journal
from tests.faults.stage.plane import OwnPlane, Plane
from tools.controlplane.plane import APISERVER, ETCD


class Outages:
    """Ends and starts the components of a control plane off the event loop, and notes when they were away."""

    def __init__(self, plane: Plane, journal: Journal) -> None:
        self.plane = plane
        self._journal = journal
        self._away: dict[str, int] = {}

    async def kill_apiserver(self) -> None:
        """SIGKILL."""
        plane = self.own_plane
        self._away.setdefault(APISERVER, self._journal.begin_outage(APISERVER))
        await asyncio.to_thread(plane.kill_apiserver)

    async def start_apiserver(self) -> None:
        """Start it again; returns when it is ready."""
        await asyncio.to_thread(self.own_plane.start_apiserver)
        await self.served()
        self._back(APISERVER)

    async def kill_etcd(self) -> None:
        """SIGKILL; what it has answered stays stored."""
        plane = self.own_plane
        self._away.setdefault(ETCD, self._journal.begin_outage(ETCD))
        await asyncio.to_thread(plane.kill_etcd)

    async def start_etcd(self) -> None:
        """Start it again; returns when the API server, if it is there, reads from it."""
        plane = self.own_plane
        await asyncio.to_thread(plane.start_etcd)
        if APISERVER in plane.pids:
            await asyncio.to_thread(plane.wait_for_apiserver)
            await self.served()
        self._back(ETCD)

    async def served(self) -> None:
        """Wait until our own resources are served, which is later than readiness."""

    async def restore(self) -> None:
        """Start what is dead."""
        if not isinstance(self.plane, OwnPlane):
            return
        if ETCD not in self.plane.pids:
            await self.start_etcd()
        if APISERVER not in self.plane.pids:
            await self.start_apiserver()

    @property
    def own_plane(self) -> OwnPlane:
        """The control plane, if it is this test's alone. Raises AssertionError."""
        if isinstance(self.plane, OwnPlane):
            return self.plane
        raise AssertionError(
            "other tests use this control plane: mark the test `own_plane` to end parts of one"
        )

    def _back(self, what: str) -> None:
        if what in self._away:
            self._journal.end_outage(self._away.pop(what))
