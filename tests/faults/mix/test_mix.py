"""Everything at once, at random: commands, kills, stops, cuts and outages, as a seed draws them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.history.summary import Summary
from tests.faults.mix.performance import Performance, perform
from tests.faults.mix.steps import WORKLOAD
from tests.faults.stage.plane import OwnPlane

pytestmark = [pytest.mark.faults, pytest.mark.timeout(900)]

SECONDS: Final = 120.0
DUE_A_MINUTE: Final = 15
"""Due times of any minute of a plan, at least. One may be without hosts; the calm behind it has one more."""


@pytest.mark.own_plane
@pytest.mark.waits(260)
async def test_a_random_mix_keeps_every_guarantee(plane: OwnPlane, seed: int, tmp_path: Path) -> None:
    """After it nothing is lost, doubled, stuck or groundless, and the store is as AstraBox wants it."""
    performance = await perform(plane, seed, SECONDS, logs=tmp_path)
    print(f"SEED={seed}: {performance.done}, {dict(performance.processes)}")  # noqa: T201
    try:
        summary = assert_holds(performance.history)
        print(summary)  # noqa: T201 - what was seen belongs to the run
        _something_was_done(performance)
        _something_was_due(summary)
        assert performance.differing == ()
    except AssertionError as error:
        raise AssertionError(f"SEED={seed} make faults; logs: {tmp_path}\n{error}") from error


def _something_was_done(performance: Performance) -> None:
    """A plan of which little could be carried out would show nothing."""
    done, passed_over = performance.done.steps, performance.done.passed_over
    assert done.total() > 2 * passed_over.total(), (done, passed_over)
    assert sum(done[kind] for kind in WORKLOAD) > 0
    assert performance.processes.get("start host", 0) > 4


def _something_was_due(summary: Summary) -> None:
    """One in which hardly anything had to fire would show nothing, either."""
    assert summary.due_certain >= DUE_A_MINUTE, str(summary)
    assert summary.fired >= 2 * DUE_A_MINUTE, str(summary)
