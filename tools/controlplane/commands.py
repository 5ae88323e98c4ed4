"""Command lines of etcd and kube-apiserver, tuned for tests, but with real authorization."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"


@dataclass(frozen=True)
class Ports:
    """The three ports of one control plane, all on 127.0.0.1."""

    apiserver: int
    etcd: int
    etcd_peer: int

    @property
    def etcd_url(self) -> str:
        """Where the API server finds etcd."""
        return f"http://{HOST}:{self.etcd}"


def free_ports() -> Ports:
    """Three ports that are free now; another process may still take one before we bind it."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
        for each in sockets:
            each.bind((HOST, 0))
        return Ports(*(each.getsockname()[1] for each in sockets))


def etcd_command(binary: Path, directory: Path, ports: Ports, *, fsync: bool) -> list[str]:
    """Without fsync a crash of the machine may lose data, a crash of etcd does not."""
    peer = f"http://{HOST}:{ports.etcd_peer}"
    return [
        str(binary),
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={ports.etcd_url}",
        f"--advertise-client-urls={ports.etcd_url}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        *([] if fsync else ["--unsafe-no-fsync"]),
    ]


def apiserver_command(binary: Path, directory: Path, ports: Ports, extra: Sequence[str] = ()) -> list[str]:
    """Make the API server create its own CA, certificate and key in `certs/` on its first start.

    That key also signs service account tokens, so neither openssl nor a key generator of ours is needed.
    """
    key = directory / "certs" / "apiserver.key"
    return [
        str(binary),
        f"--etcd-servers={ports.etcd_url}",
        f"--bind-address={HOST}",
        f"--advertise-address={HOST}",  # else it looks for a default route, which a sandbox may not have
        "--endpoint-reconciler-type=none",  # a loopback address is no valid endpoint
        f"--secure-port={ports.apiserver}",
        f"--cert-dir={directory / 'certs'}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-signing-key-file={key}",
        f"--service-account-key-file={key}",
        "--service-cluster-ip-range=10.96.0.0/16",
        *extra,
    ]
