"""What is changed while some processes are blind: one schedule goes, one comes, one is edited."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tests.faults.history.facts import History
from tests.faults.scenes.calls import assert_called_once
from tests.faults.scenes.runs import ended_as, run_name
from tests.faults.scenes.schedules import schedule
from tests.faults.stage.rig import Rig

BEFORE: Final = ("steady", "off", "gone", "edited")
AFTER: Final = ("steady", "fresh", "edited")


async def change_meanwhile(rig: Rig, host: str) -> None:
    """What the blind ones do not see: one is disabled, one deleted, one new, one edited."""
    door = rig.host(host)
    await door.apply(schedule("off", enabled=False))
    await door.delete("gone")
    await door.apply(schedule("fresh"))
    await door.apply(schedule("edited", n=2))


def assert_changes_count(history: History, dues: Sequence[float]) -> None:
    """G5, G1: at these due times the new state fires, and nothing of the old."""
    wanted = [run_name(name, due) for name in AFTER for due in dues]
    assert ended_as(history, wanted) == {"Succeeded": len(wanted)}
    assert_called_once(history, wanted)
    for due in dues:
        assert history.runs[run_name("edited", due)]["spec"]["payload"] == '{"n":2}'
        for name in ("off", "gone"):
            assert run_name(name, due) not in history.runs, f"{name} has fired"
