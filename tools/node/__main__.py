"""`python -m tools.node up|down|load|check|packages`."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from tools.controlplane.foreground import exit_code, run_until_interrupted
from tools.node.components import Layout
from tools.node.errors import ImageError
from tools.node.leftovers import remove_leftovers, running_nodes
from tools.node.node import Node
from tools.node.packages import check_machine, check_user, missing_packages
from tools.node.runtime import import_image

ROOT = Path(__file__).parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.node", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("up", help="run a node in the foreground until Ctrl-C")
    commands.add_parser("down", help="remove what nodes have left that were killed; those that run stay")
    load = commands.add_parser("load", help="import images into the running node")
    load.add_argument("images", nargs="+", type=Path, metavar="IMAGE.tar", help="a docker-archive")
    load.add_argument("--node", type=Path, metavar="DIRECTORY", help="which node, if several run")
    commands.add_parser("check", help="say whether a node can run here, and what to do if not")
    commands.add_parser("packages", help="print the Debian packages that are missing, one a line")
    options = parser.parse_args(arguments)
    commands_by_name = {
        "up": _up,
        "down": _down,
        "load": lambda: _load(options.images, options.node),
        "check": _check,
        "packages": _packages,
    }
    return exit_code(commands_by_name[options.command])


def _up() -> int:
    return run_until_interrupted(Node(), _print_usage)


def _print_usage(node: Node, seconds: float) -> None:
    print(f"# the node is ready ({seconds:.1f} s); its files and logs are in {node.directory}")
    print(f"export KUBECONFIG={shlex.quote(str(node.kubeconfig))}")
    print(f"export PATH={shlex.quote(str(node.kubectl_path.parent))}:$PATH")
    print("# in another shell, for example: kubectl get pods -A")
    print(f"# images:            cd {ROOT} && {sys.executable} -m tools.node load IMAGE.tar")
    print("#                    (imagePullPolicy must not be Always)")
    print(f"# pods and services: {' '.join(node.inside)} wget -qO- http://ADDRESS")
    print("# Ctrl-C here ends it and removes all of it", flush=True)


def _check() -> int:
    check_machine()
    return 0


def _down() -> int:
    check_user()
    removed, used = remove_leftovers()
    for folder in removed:
        print(f"removed {folder}")
    for folder in running_nodes():
        print(f"{folder} is running; Ctrl-C where it was started ends it", file=sys.stderr)
    for folder in used:
        print(f"{folder} has processes; its node was started with another TMPDIR", file=sys.stderr)
    return 0


def _load(images: list[Path], directory: Path | None) -> int:
    check_user()
    nodes = running_nodes()
    if directory is None and len(nodes) != 1:
        names = "".join(f"\n  --node {node}" for node in nodes)
        raise ImageError(
            f"several nodes run; say which:{names}"
            if nodes
            else "no node runs; start one: python -m tools.node up"
        )
    layout = Layout(directory or nodes[0])
    for image in images:
        import_image(layout, image)
        print(f"imported {image} into {layout.directory}")
    return 0


def _packages() -> int:
    for package in missing_packages():
        print(package)
    return 0


if __name__ == "__main__":
    sys.exit(main())
