"""A machine that cannot run a node is said so once, before the first test: none of them is skipped for it."""

from __future__ import annotations

import pytest

from tools.controlplane import ControlPlaneError, ensure_binaries
from tools.controlplane.recipe import NODE
from tools.node.images import pause_image
from tools.node.packages import check_machine


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build programs before the first test starts its clock; the first time it takes minutes."""
    wanted = any(item.get_closest_marker("node") is not None for item in session.items)
    if session.config.option.collectonly or not wanted:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            check_machine()
            ensure_binaries()
            ensure_binaries(NODE)
            pause_image()
    except ControlPlaneError as error:
        raise pytest.UsageError(str(error)) from error
