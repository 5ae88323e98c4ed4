"""docs/install.md, from the first command to the last, as its reader runs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from e2e.budget import BUILDING
from e2e.images import Images
from e2e.install_doc import Block, page_blocks
from e2e.install_stage import InstallStage, drop_built, make_stage
from e2e.install_steps import STEPS, check_sample
from e2e.release import deploy_repository
from tools.controlplane import Cluster
from tools.helm import Helm
from tools.node import Node

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1500)]  # two images are built
BLOCKS = page_blocks()


class Walk:
    """The page is read in its order: what stands behind a block that failed means nothing."""

    def __init__(self, stage: InstallStage) -> None:
        self.stage = stage
        self._failed: str | None = None

    def take(self, block: Block) -> None:
        if self._failed is not None:
            pytest.fail(f"the block {self._failed} before it has failed", pytrace=False)
        step = STEPS[block.name]
        self._failed = block.name
        if step.before is not None:
            step.before(self.stage)
        with self.stage.building() if step.builds else nullcontext():
            said = self.stage.shell(block, step.timeout, both_streams=step.both_streams)
        if step.check is not None:
            step.check(self.stage, said)
        if block.sample:
            check_sample(block.sample, said)
        self._failed = None


@pytest.fixture(scope="module")
def walk(
    cluster: Cluster, images: Images, helm: Helm, namespace: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Walk]:
    if not isinstance(cluster, Node):
        pytest.skip("the page builds images that must get onto the nodes: use a node of this machine's own")
    deploy_repository(cluster, namespace, images)
    stage = make_stage(cluster, helm, namespace, tmp_path_factory.mktemp("page"), os.environ)
    try:
        stage.release.rolled_out("repository")
        yield Walk(stage)
    finally:
        drop_built()


@pytest.mark.parametrize("block", BLOCKS, ids=[block.name for block in BLOCKS])
def test_commands_of_the_page(walk: Walk, block: Block, request: pytest.FixtureRequest) -> None:
    before = walk.stage.building_seconds
    try:
        walk.take(block)
    finally:
        request.node.user_properties.append((BUILDING, walk.stage.building_seconds - before))
        request.node.add_report_section("call", "commands", "\n".join(walk.stage.transcript))


def test_no_step_is_left_over() -> None:
    assert [block.name for block in BLOCKS] == list(STEPS)
