"""containerd of a node: its configuration files, its start and the import of images."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tools.node.components import CONTAINERD, Layout, containerd_configuration, network_configuration
from tools.node.enclosure import Enclosure
from tools.node.errors import ImageError
from tools.node.packages import CNI, SEARCH

_IMPORT_TIMEOUT = 300.0


def start_containerd(enclosure: Enclosure, layout: Layout) -> None:
    """Write the configuration of containerd and of the pods' network, and start it."""
    layout.network.mkdir()
    (layout.network / "10-pods.conflist").write_text(json.dumps(network_configuration(layout)))
    configuration = layout.directory / "containerd.toml"
    configuration.write_text(containerd_configuration(layout, CNI))
    enclosure.start(CONTAINERD, ["containerd", f"--config={configuration}"])


def import_image(layout: Layout, archive: Path) -> None:
    """Import a docker-archive under the tags it names; `ImageError` if that fails."""
    command = ["ctr", f"--address={layout.socket}", "--namespace=k8s.io", "images", "import", str(archive)]
    done = subprocess.run(
        command, env={"PATH": SEARCH}, capture_output=True, text=True, check=False, timeout=_IMPORT_TIMEOUT
    )
    if done.returncode:
        raise ImageError(
            f"{archive} could not be imported: {done.stderr.strip()}\n"
            "Give a docker-archive, from `docker save` or `buildah push IMAGE docker-archive:FILE:IMAGE`."
        )
