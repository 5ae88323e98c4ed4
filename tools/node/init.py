"""Process 1 of a node: prepares its namespaces, then waits for processes that nobody else waits for.

Run as a script of its own (`python -I -S init.py DIRECTORY ADDRESS`), standard library only, in new
namespaces of mounts, network and processes. When it ends, the kernel ends every process of the node, those in
containers too, and with the last of them go mounts, interfaces and packet filter rules.
`DIRECTORY/init.ready` says that all is prepared.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

PRIVATE = ("/var/lib", "/var/log")
"""Folders that containerd, the kubelet and CNI write to wherever they are told to; the node has its own."""

KERNEL = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)
"""Settings of the whole machine that a kubelet insists on changing: it gets files in their place."""


def prepare(directory: Path, address: str) -> None:
    """Set up mounts and network of the namespaces that this process is in."""
    _mount("-t", "proc", "proc", "/proc")
    for folder in PRIVATE:
        own = directory / Path(folder).name
        own.mkdir()
        _mount("--bind", str(own), folder)
    # Network namespaces of pods, sockets of shims, the lock of iptables.
    _mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for name in KERNEL:
        setting, own = Path("/proc/sys", name), directory / "kernel" / name
        own.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(setting, own)
        _mount("--bind", str(own), str(setting))
    _run("ip", "link", "set", "lo", "up")
    # A bridge without ports carries the address: not every kernel has the type dummy.
    _run("ip", "link", "add", "node0", "type", "bridge")
    _run("ip", "address", "add", f"{address}/24", "dev", "node0")
    _run("ip", "link", "set", "node0", "up")
    # kube-proxy's rules see a packet only if it has a route, even to an address that they rewrite.
    _run("ip", "route", "add", "default", "dev", "node0")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")


def reap() -> None:
    """Wait for orphans, for ever; shims, for example, are orphans by design."""
    while True:
        signal.sigwait({signal.SIGCHLD})
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass


def _mount(*arguments: str) -> None:
    _run("mount", "--no-mtab", *arguments)  # else it makes /run/mount, where /run is still the machine's


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    prepare(Path(sys.argv[1]), sys.argv[2])
    Path(sys.argv[1], "init.ready").touch()
    reap()
