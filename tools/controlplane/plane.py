"""One etcd and one kube-apiserver of our own, from start to stop."""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tools.controlplane.api import answers_ok, get, post
from tools.controlplane.binaries import ensure_binaries
from tools.controlplane.cluster import Cluster
from tools.controlplane.commands import HOST, Ports, apiserver_command, etcd_command, free_ports
from tools.controlplane.errors import PortTakenError, StartError
from tools.controlplane.external import ExternalCluster
from tools.controlplane.kubeconfig import certificate_authority, write_kubeconfig, write_private
from tools.controlplane.processes import Processes
from tools.controlplane.sources import DEFAULT_CONTEXTS, external_kubeconfig

ETCD, APISERVER = "etcd", "kube-apiserver"
_PORT_ATTEMPTS = 5
_POLL = 0.05


class ControlPlane(Cluster):
    """A control plane of its own on free ports of 127.0.0.1; any number can run side by side.

    There is no controller manager: a deleted namespace stays in `Terminating`, and owner references delete
    nothing. `ready_timeout` is in seconds; `apiserver_flags` are appended to the command line, and may be
    a function that is given the directory (in which it may write the files that its flags name). `users` are
    more users and the group of each; `user_kubeconfig` logs in as one of them.
    """

    context = DEFAULT_CONTEXTS[0]

    def __init__(
        self,
        *,
        binaries: Path | None = None,
        fsync: bool = False,
        apiserver_flags: Sequence[str] | Callable[[Path], Sequence[str]] = (),
        ready_timeout: float = 60.0,
        choose_ports: Callable[[], Ports] = free_ports,
        users: Mapping[str, str] | None = None,
        open_processes: Callable[[], Processes] = Processes,
    ) -> None:
        self._binaries = binaries
        self._fsync = fsync
        self._given_flags = apiserver_flags
        self._flags: Sequence[str] = ()
        self._timeout = ready_timeout
        self._choose_ports = choose_ports
        self._users = dict(users or {})
        self._open_processes = open_processes
        self._token = ""
        self._processes: Processes | None = None

    def start(self) -> Self:
        """Build what is missing, start both components and return when the API server is ready."""
        if self._processes is not None:
            raise StartError("this control plane is running already; stop() it first")
        folder = self._binaries or ensure_binaries()
        self._binaries, self.kubectl_path = folder, folder / "kubectl"
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            try:
                self._launch()
            except PortTakenError:
                self.stop()
                if attempt == _PORT_ATTEMPTS:
                    raise
            except BaseException:
                self.stop()
                raise
            else:
                break
        return self

    def stop(self) -> None:
        """End both components and remove their directory; may be called again."""
        if self._processes is not None:
            self._processes.close()
            self._processes = None

    @property
    def pids(self) -> Mapping[str, int]:
        """Process ids of the running components: `etcd` and `kube-apiserver`."""
        return dict(self._running.pids)

    @property
    def etcd_url(self) -> str:
        """Where etcd answers; it asks nobody who they are."""
        return self._ports.etcd_url

    @property
    def keeper_pid(self) -> int:
        """The process that ends the components when this one is gone."""
        return self._running.keeper_pid

    @property
    def logs(self) -> Mapping[str, Path]:
        """Log files of the components."""
        return {name: self._running.log(name) for name in (ETCD, APISERVER)}

    @property
    def processes(self) -> Processes:
        """The processes of this control plane; others can be added, which end with it."""
        return self._running

    def user_kubeconfig(self, user: str) -> Path:
        """Kubeconfig of one of the users given."""
        path = self.directory / f"{user.replace(':', '.')}.kubeconfig"
        write_kubeconfig(path, url=self.url, ca=self.ca_file, token=self._tokens[user], context=self.context)
        return path

    def kill_apiserver(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the API server; etcd keeps the objects."""
        self._running.kill(APISERVER, number)

    def start_apiserver(self) -> None:
        """Start the API server again, with the same port and certificates, and wait until it is ready."""
        self._start_apiserver()
        self.wait_for_apiserver()

    def wait_for_apiserver(self) -> None:
        """Wait until the API server is ready, for example after etcd was away."""
        self.wait_until(APISERVER, self._apiserver_ready)

    def kill_etcd(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End etcd; the API server answers with errors until it is back."""
        self._running.kill(ETCD, number)

    def start_etcd(self) -> None:
        """Start etcd again on the same port and data, and wait until it answers."""
        self._start_etcd()
        self.wait_until(ETCD, self._etcd_ready)

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Over plain HTTPS: a few milliseconds where kubectl takes a tenth of a second."""
        return post(self._ports.apiserver, path, body, ca_file=self.ca_file, token=self._token)

    def get(self, path: str) -> dict[str, Any] | None:
        """GET as the administrator; None if there is no such object, `RequestError` on other errors."""
        return get(self._ports.apiserver, path, ca_file=self.ca_file, token=self._token)

    def check(self) -> None:
        """Raise `StartError` with the end of the log if a component has ended by itself."""
        for name, code in self._running.exited().items():
            raise self._ended(name, code)

    def discard_namespace(self, name: str) -> None:
        """Leave it: without a namespace controller a delete would never end, and stop() removes all."""

    @property
    def _running(self) -> Processes:
        if self._processes is None:
            raise StartError("this control plane is not running; start() it first")
        return self._processes

    def _launch(self) -> None:
        self._processes = self._open_processes()
        self._ports = self._choose_ports()
        self.directory = self._processes.directory
        given = self._given_flags
        self._flags = given(self.directory) if callable(given) else given
        self.url = f"https://{HOST}:{self._ports.apiserver}"
        self.ca_file = self.directory / "ca.crt"
        self.kubeconfig = self.directory / "admin.kubeconfig"
        self._token = secrets.token_urlsafe(32)
        self._tokens = {user: secrets.token_urlsafe(32) for user in self._users}
        rows = [(self._token, "admin", "system:masters")]
        rows += [(self._tokens[user], user, group) for user, group in self._users.items()]
        write_private(
            self.directory / "tokens.csv",
            "".join(f'{token},{user},{user},"{group}"\n' for token, user, group in rows),
        )
        self._start_etcd()
        self._start_apiserver()
        self.wait_until(ETCD, self._etcd_ready)
        self.wait_until(APISERVER, self._certificate_written)
        self.wait_until(APISERVER, self._apiserver_ready)
        self.check()  # else the etcd that answered may be a stranger's, on a port that ours did not get
        write_kubeconfig(
            self.kubeconfig, url=self.url, ca=self.ca_file, token=self._token, context=self.context
        )

    def _start_etcd(self) -> None:
        assert self._binaries is not None
        self._running.start(
            ETCD, etcd_command(self._binaries / ETCD, self.directory, self._ports, fsync=self._fsync)
        )

    def _start_apiserver(self) -> None:
        assert self._binaries is not None
        self._running.start(
            APISERVER,
            apiserver_command(self._binaries / APISERVER, self.directory, self._ports, self._flags),
        )

    def _etcd_ready(self) -> bool:
        return answers_ok(self._ports.etcd, "/health")

    def _certificate_written(self) -> bool:
        try:
            authority = certificate_authority((self.directory / "certs" / "apiserver.crt").read_text())
        except FileNotFoundError:
            return False
        if authority is None:
            return False
        self.ca_file.write_text(authority)
        return True

    def _apiserver_ready(self) -> bool:
        # /readyz does not cover the namespace `default`, which a hook of the API server makes.
        return all(
            answers_ok(self._ports.apiserver, path, ca_file=self.ca_file, token=self._token)
            for path in ("/readyz", "/api/v1/namespaces/default")
        )

    def wait_until(self, name: str, ready: Callable[[], bool]) -> None:
        """Wait for `ready`; `StartError` with the log of the component `name` if it takes too long."""
        deadline = time.monotonic() + self._timeout
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise StartError(
                    f"{name} was not ready within {self._timeout:g} s; the end of its log:\n"
                    f"{self._running.log_tail(name)}\nIf this machine is merely slow, raise ready_timeout."
                )
            time.sleep(_POLL)

    def _ended(self, name: str, code: int) -> StartError:
        log = self._running.log_tail(name)
        if "address already in use" in self._running.log(name).read_text(errors="replace"):
            return PortTakenError(
                f"another process took a port of {name}; the end of its log:\n{log}\nTry again."
            )
        advice = (
            f"The binary was stopped by a signal: is there enough memory, and is {self._binaries} intact?"
            if code < 0
            else "Correct what the log complains about; binaries that do not belong together are rebuilt "
            f"after deleting {self._binaries}."
        )
        return StartError(f"{name} ended with code {code}; the end of its log:\n{log}\n{advice}")


def open_cluster(environ: Mapping[str, str] | None = None) -> Cluster:
    """Choose the cluster tests should use, not started yet: the user's if given, else one of our own."""
    environ = os.environ if environ is None else environ
    external = external_kubeconfig(environ)
    return ControlPlane() if external is None else ExternalCluster(*external, environ)
