"""What of a plan must be stored when it is over, before anything is repaired."""

from __future__ import annotations

from typing import Any

import pytest

from astrabox.host_deployments import DeploymentRecords
from astrabox.seams.scheduler import Schedule
from tests.faults.history.facts import Command
from tests.faults.mix.performance import differing, undisturbed

UNAVAILABLE = "SchedulerUnavailable: The schedule was not saved."


def command(sent: float, returned: float | None, error: str | None = None, **fields: Any) -> Command:
    return Command("host-1", fields.pop("op", "apply"), sent, returned, error, deployment_id="a", **fields)


@pytest.mark.parametrize(
    ("commands", "stands"),
    [
        ([command(1, 2)], True),
        ([command(1, 2, op="delete")], True),
        ([command(1, 2, UNAVAILABLE), command(3, 4)], True),
        ([command(3, 4), command(1, 2, UNAVAILABLE)], True),
        ([command(1, 2), command(3, 4, UNAVAILABLE)], False),
        ([command(1, 2), command(3, None)], False),
        ([command(1, None), command(3, 4)], False),
        ([command(1, 3.5), command(3, 4)], False),
        ([command(1, 2, op="enqueue")], False),
    ],
)
def test_what_stands_without_a_repair(commands: list[Command], stands: bool) -> None:
    assert undisturbed(commands) == ({"a"} if stands else set())


def test_only_what_stands_is_compared() -> None:
    records, rule = DeploymentRecords(None), Schedule("a", "* * * * *", "UTC", enabled=True, payload={})
    records.put("a", rule)
    assert differing(records, {"a": rule}) == ()
    (told,) = differing(records, {})
    assert told.startswith("'a': AstraBox has")
    assert differing(records, {}, {"a"}) == (told,)
    assert differing(records, {}, {"b"}) == ()
