"""`python -m tools.controlplane build|up|path`."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from tools.controlplane.binaries import binary_folder, ensure_binaries, missing_binaries
from tools.controlplane.cluster import Cluster
from tools.controlplane.foreground import exit_code, run_until_interrupted
from tools.controlplane.plane import open_cluster
from tools.controlplane.recipe import CONTROL_PLANE, FAULT_TOOLS, HELM, HELM_3, NODE
from tools.controlplane.sources import given_assets


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.controlplane", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    build = commands.add_parser(
        "build", help="build etcd, kube-apiserver and kubectl if need be; print their folder"
    )
    build.add_argument("--faults", action="store_true", help="also toxiproxy, for the fault tests")
    build.add_argument("--node", action="store_true", help="also what a node needs, and helm")
    commands.add_parser("path", help="print the folder of the binaries, without building")
    commands.add_parser("up", help="run a control plane in the foreground until Ctrl-C")
    options = parser.parse_args(arguments)
    commands_by_name = {
        "build": lambda: _build(faults=options.faults, node=options.node),
        "path": _path,
        "up": _up,
    }
    return exit_code(commands_by_name[options.command])


def _build(*, faults: bool, node: bool) -> int:
    kits: list[tuple[str, ...]] = [CONTROL_PLANE]
    kits += [FAULT_TOOLS] if faults else []
    kits += [NODE, HELM, HELM_3] if node else []
    for kit in kits:
        print(ensure_binaries(kit))
    return 0


def _path() -> int:
    if given := given_assets(os.environ, CONTROL_PLANE):
        print(given)
        return 0
    folder = binary_folder(os.environ)
    if missing := missing_binaries(folder, CONTROL_PLANE):
        print(
            f"{folder} lacks {', '.join(missing)}; run: python -m tools.controlplane build", file=sys.stderr
        )
        return 1
    print(folder)
    return 0


def _up() -> int:
    return run_until_interrupted(open_cluster(), _print_usage)


def _print_usage(cluster: Cluster, seconds: float) -> None:
    print(f"# {cluster.url} is ready ({seconds:.1f} s); its files are in {cluster.directory}")
    print(f"export KUBECONFIG={shlex.quote(str(cluster.kubeconfig))}")
    print(f"export PATH={shlex.quote(str(cluster.kubectl_path.parent))}:$PATH")
    print("# in another shell, for example: kubectl get namespaces")
    print("# Ctrl-C here ends it and removes its files", flush=True)


if __name__ == "__main__":
    sys.exit(main())
