"""A process that is frozen for the checker was frozen; one that had ended was not, nor is its next life."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import MagicMock

import pytest

from tests.faults.mix.drive import Driver
from tests.faults.stage.rig import Rig
from tools.controlplane.processes import End


def a_rig(*, alive: bool) -> Any:
    rig: Any = Rig(MagicMock(), 0, {})
    rig.actors = MagicMock()
    rig.journal.begin("host-1", "host", 1)
    if not alive:
        end_process(rig)
    return rig


def end_process(rig: Any) -> None:
    rig.journal.ended(End("host-1", 1, -9, time.time()))
    rig.actors.send.side_effect = RuntimeError("host-1 has ended")


def frozen(rig: Any) -> list[int]:
    """How often each life was frozen, a next one included."""
    rig.journal.begin("host-1", "host", 2)
    return [len(life.frozen) for life in rig.journal.facts(time.time() + 1)]


def test_one_that_lives_is_frozen() -> None:
    rig = a_rig(alive=True)
    rig.freeze("host-1")
    rig.thaw("host-1")
    assert frozen(rig) == [1, 0]


def test_one_that_has_just_ended_is_not_frozen() -> None:
    rig = a_rig(alive=False)
    with pytest.raises(RuntimeError):
        rig.freeze("host-1")
    assert frozen(rig) == [0, 0]


def test_one_that_ends_while_it_is_frozen_leaves_the_next_alone() -> None:
    rig = a_rig(alive=True)
    rig.freeze("host-1")
    end_process(rig)
    Driver(rig, MagicMock(), MagicMock())._thaw("host-1")
    assert frozen(rig) == [1, 0]
