"""The operating-system processes of one rig: hosts and operators, each with its own rights and network."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Literal

import aiohttp

from tests.faults.history.facts import Role
from tests.faults.stage.clock import Clock, forget_clock
from tests.faults.stage.identities import Identities
from tests.faults.stage.journal import Journal, LifeSoFar
from tests.faults.stage.ports import steady_port
from tests.faults.stage.proxies import Proxies, Proxy
from tests.faults.stage.records import read_points
from tools.controlplane.commands import HOST
from tools.controlplane.processes import Processes
from tools.generated.paths import ROOT

MODULES: Mapping[Role, str] = {"host": "astrabox.host", "operator": "astrabox_scheduler_operator"}
PREFIXES: Mapping[Role, str] = {
    "host": "ASTRABOX_SCHEDULER_KUBERNETES_",
    "operator": "ASTRABOX_SCHEDULER_OPERATOR_",
}
READY_SECONDS = 120.0
HealthPage = Literal["healthz", "readyz"]
_PROBE_SECONDS = 2.0
_POLL_SECONDS = 0.2
_FOREIGN = ("ASTRABOX_", "ETCD_", "KUBE", "PYTEST_", "FAKETIME", "LD_PRELOAD")


class Actors:
    """Starts processes and knows their lives."""

    def __init__(
        self,
        *,
        processes: Processes,
        identities: Identities,
        proxies: Proxies,
        journal: Journal,
        settings: Mapping[str, str],
        direct_port: int,
    ) -> None:
        self.folder = processes.directory
        self.processes = processes
        self.proxies: dict[str, Proxy] = {}
        self.clocks: dict[str, Clock] = {}
        self._health: dict[str, int] = {}
        self._identities = identities
        self._server = proxies
        self._journal = journal
        self._settings = settings
        self._direct_port = direct_port
        self._ends = 0
        self._seen_points: dict[str, int] = {}
        for each in ("points", "calls"):
            (self.folder / each).mkdir()

    async def start(
        self, name: str, role: Role, clock: Clock | None, env: Mapping[str, str], *, proxied: bool
    ) -> LifeSoFar:
        """Start a process; it is not ready yet."""
        account = await self._identities.folder(name, role)
        port = await self._port(name) if proxied else self._direct_port
        points = self.points(name)
        points.mkdir(exist_ok=True)
        environ = _environment(port) | self._settings_of(name, role) | dict(env)
        if clock is not None:
            self.clocks[name] = clock
            environ |= clock.environment(self.folder / f"{name}.clock")
        launch = [
            "-m",
            "tests.faults.stage.launch",
            "--points",
            str(points),
            "--service-account",
            str(account),
        ]
        arguments = self._host_arguments(name) if role == "host" else []
        self.socket(name).unlink(missing_ok=True)  # left by a life that was killed
        self.processes.start(name, [sys.executable, *launch, MODULES[role], *arguments], environ)
        return self._journal.begin(name, role, self.processes.pids[name])

    async def ready(self, life: LifeSoFar) -> None:
        """Wait until it can be used. Raises AssertionError with the end of its log."""
        deadline = time.monotonic() + READY_SECONDS
        while not await self._is_ready(life):
            self.look()
            if life.end is not None:
                raise AssertionError(
                    f"{life.name} has ended with code {life.end.code}:\n{self.log(life.name)}"
                )
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"{life.name} is not ready after {READY_SECONDS:g} s:\n{self.log(life.name)}"
                )
            await asyncio.sleep(_POLL_SECONDS)
        life.ready = time.time()
        self._journal.note(f"{life.name} is ready")

    def look(self) -> None:
        """Learn which processes have ended, and what their points did."""
        for end in self.processes.ends(self._ends):
            self._ends += 1
            self._journal.ended(end)
        for name in {life.name for life in self._journal.lives}:
            self._look_at_points(name)

    async def gone(self, life: LifeSoFar, within: float) -> int:
        """Wait for its end; the exit code. Raises AssertionError."""
        deadline = time.monotonic() + within
        while life.end is None:
            if time.monotonic() > deadline:
                raise AssertionError(f"{life.name} has not ended within {within:g} s:\n{self.log(life.name)}")
            await asyncio.sleep(0.02)
            self.look()
        self._journal.thaw(life.name)
        forget_clock(life.pid)
        return life.end.code

    def close(self) -> None:
        """End all and remove all they have left."""
        self.processes.close()
        for life in self._journal.lives:
            forget_clock(life.pid)

    def send(self, name: str, number: signal.Signals) -> LifeSoFar:
        """Send a signal; the life it meets. Raises RuntimeError if that has ended."""
        self.look()
        life = self._journal.latest(name)
        if life.end is not None:
            raise RuntimeError(f"{name} has ended with code {life.end.code}:\n{self.log(name)}")
        self._journal.note(f"{number.name} to {name}")
        self.processes.signal(name, number)
        return life

    def stopped(self, name: str) -> bool:
        """Whether it is held by SIGSTOP at this moment."""
        try:
            stat = Path(f"/proc/{self._journal.latest(name).pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return False
        return stat.rpartition(")")[2].split()[0] == "T"

    def points(self, name: str) -> Path:
        """Folder of its points."""
        return self.folder / "points" / name

    def calls(self, name: str) -> Path:
        """Record of its handler calls."""
        return self.folder / "calls" / f"{name}.jsonl"

    def socket(self, name: str) -> Path:
        """Where it takes commands."""
        return self.folder / f"{name}.sock"

    @property
    def deployments(self) -> Path:
        """The Deployment records that the hosts share."""
        return self.folder / "deployments"

    def log(self, name: str, lines: int = 15) -> str:
        """The end of its log."""
        return self.processes.log_tail(name, lines)

    def said(self, name: str) -> str:
        """All of its log, with long lines whole."""
        return self.processes.log(name).read_text(errors="replace")

    async def health(self, name: str, page: HealthPage) -> tuple[int, str]:
        """Status code and text of what an operator says of itself; 0 if nobody listens. Raises KeyError."""
        try:
            async with (
                aiohttp.ClientSession() as session,
                session.get(f"http://{HOST}:{self._health[name]}/{page}") as answer,
            ):
                return answer.status, await answer.text()
        except aiohttp.ClientConnectionError:
            return 0, "nobody listens"

    async def _is_ready(self, life: LifeSoFar) -> bool:
        if life.role == "host":
            return self.socket(life.name).exists()
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                code, _ = await self.health(life.name, "readyz")
        except (aiohttp.ClientError, TimeoutError):
            return False
        return code == HTTPStatus.OK

    async def _port(self, name: str) -> int:
        if name not in self.proxies:
            hindrance: list[int] = []

            def notice(worse: bool) -> None:
                if worse and not hindrance:
                    hindrance.append(self._journal.hinder(name))
                elif not worse and hindrance:
                    self._journal.unhinder(hindrance.pop())

            self.proxies[name] = await self._server.proxy(name, notice)
        return self.proxies[name].port

    def _settings_of(self, name: str, role: Role) -> dict[str, str]:
        given = {key: value for key, value in self._settings.items() if key.startswith(PREFIXES[role])}
        if role == "host":
            return {"ASTRABOX_SCHEDULER_PROVIDER": "kubernetes"} | given
        self._health.setdefault(name, steady_port())
        health = {"HEALTH_HOST": HOST, "HEALTH_PORT": str(self._health[name]), "LOG_FORMAT": "text"}
        return {PREFIXES[role] + key: value for key, value in health.items()} | given

    def _host_arguments(self, name: str) -> list[str]:
        return [
            *("--name", name, "--socket", str(self.socket(name))),
            *("--record", str(self.calls(name)), "--deployments", str(self.deployments)),
        ]

    def _look_at_points(self, name: str) -> None:
        """Take over what a process did to itself at its points."""
        lines = read_points(self.points(name))
        seen = self._seen_points.get(name, 0)
        self._seen_points[name] = len(lines)
        for number, line in enumerate(lines[seen:], seen):
            match line["action"]:
                case "stop":
                    self._journal.add_frozen(name, line["at"])
                case "term":
                    for life in self._journal.lives:
                        if life.pid == line["pid"]:
                            life.asked_to_end = life.asked_to_end or line["at"]
                case "released":
                    waits = [each for each in lines[:number] if each["action"] == "wait"]
                    began = [each["at"] for each in waits if each["point"] == line["point"]][-1]
                    self._journal.add_hindered(name, (began, line["at"]))


def _environment(port: int) -> dict[str, str]:
    """What a pod would have; of the caller's shell nothing that steers the product or its requests."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(_FOREIGN) and not key.lower().endswith("_proxy")
    }
    return kept | {
        "PYTHONPATH": str(ROOT),
        "KUBERNETES_SERVICE_HOST": HOST,
        "KUBERNETES_SERVICE_PORT": str(port),
    }
