"""Replicas that reconcile with lists of different age, while another one carries out commands."""

import asyncio
import random
from collections.abc import Sequence

import pytest

from astrabox.seams.scheduler import Schedule
from tests.faults.history.check import assert_holds
from tests.faults.history.facts import History
from tests.faults.history.rules import Rules as Stored
from tests.faults.scenes.schedules import ONCE_A_YEAR, schedule, stored_rules
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(280)]

Rules = dict[str, Schedule]


def rule(name: str, *, enabled: bool = True, version: int = 0) -> Schedule:
    return schedule(name, ONCE_A_YEAR, enabled=enabled, version=version)


async def test_old_lists_undo_no_command(rig: Rig) -> None:
    """Two hosts reconcile old lists during applies, disables and deletes: the last commands stand."""
    await rig.start_hosts(3)
    records: Rules = {name: rule(name) for name in (f"d-{number}" for number in range(24))}
    await rig.host("host-1").reconcile(list(records.values()))
    lists = [list(records.values())]
    over = asyncio.Event()
    replicas = [
        asyncio.create_task(_reconcile(rig, host, lists, over, oldest))
        for host, oldest in (("host-1", True), ("host-2", False))
    ]
    chance = random.Random(rig.seed)
    for number in range(60):
        name = f"d-{chance.randrange(30)}"
        await _command(rig, records, name, chance.choice(("apply", "disable", "delete")), number)
        lists.append(list(records.values()))
    over.set()
    await asyncio.gather(*replicas)
    assert await stored_rules(rig) == records
    history = await rig.collect()
    assert _left_alone(history), "no list was older than a command, so that nothing was shown"
    assert_holds(history)


def _left_alone(history: History) -> list[tuple[str, str]]:
    """Who found another schedule than its list has, or the tombstone of one, and left it as it was."""
    stored = Stored(history)
    return [
        (command.host, given["deployment_id"])
        for command in history.commands
        if command.op == "reconcile" and command.done and command.returned is not None
        for given in command.given
        if not any(
            version.rule is not None and version.rule.says(given)
            for version in stored.possible(given["deployment_id"], command.sent, command.returned)
        )
    ]


async def _reconcile(
    rig: Rig, host: str, lists: Sequence[list[Schedule]], over: asyncio.Event, oldest: bool
) -> None:
    """With the first list all the time, or with one a few commands old; once more after the last command."""
    while True:
        last = over.is_set()
        await rig.host(host).reconcile(lists[0] if oldest else lists[max(len(lists) - 6, 0)])
        if last:
            return


async def _command(rig: Rig, records: Rules, name: str, kind: str, version: int) -> None:
    """As AstraBox does: its record first, then the scheduler."""
    if kind == "delete":
        records.pop(name, None)
        await rig.host("host-3").delete(name)
    else:
        records[name] = rule(name, enabled=kind == "apply", version=version)
        await rig.host("host-3").apply(records[name])


OVERLAPS = (
    ("schedule-updated", rule("disabled"), rule("disabled", enabled=False)),
    ("schedule-updated", rule("deleted"), None),
    ("schedule-created", None, rule("new-disabled", enabled=False)),
    ("schedule-created", None, None),
)
"""What an apply is about to write, what is stored, and another host's command meanwhile (None: a delete)."""


async def test_a_command_under_way_does_not_undo_a_later_one(rig: Rig) -> None:
    """G5: one host is about to write an apply; another one disables or deletes, and has answered."""
    await rig.start_hosts(2)
    for point, before, command in OVERLAPS:
        name = next((each.deployment_id for each in (before, command) if each), "new-deleted")
        if before:
            await rig.host("host-2").apply(before)
        rig.arm("host-1", f"before:{point}", "wait")
        late = asyncio.create_task(rig.host("host-1").apply(rule(name, version=1)))
        await rig.reached("host-1", f"before:{point}", within=30)
        if command:
            await rig.host("host-2").apply(command)
        else:
            await rig.host("host-2").delete(name)
        rig.release("host-1", f"before:{point}")
        await late
        assert (await stored_rules(rig)).get(name) == command, (point, name)
    assert_holds(await rig.collect())


RACES = (
    ("schedule-removed", rule("removed"), None, rule("removed", version=2)),
    ("schedule-created", None, rule("created"), None),
    ("schedule-updated", rule("changed"), rule("changed", version=1), rule("changed", enabled=False)),
)
"""What a reconcile is about to write, what is stored, what it was given, what AstraBox commands meanwhile."""


async def test_command_between_look_and_write_wins(rig: Rig) -> None:
    """WA-12: a reconcile about to remove, create or change a schedule does not undo what comes between."""
    await rig.start_hosts(2)
    for point, before, given, command in RACES:
        await rig.host("host-2").reconcile([before] if before else [])
        rig.arm("host-1", f"before:{point}", "wait")
        late = asyncio.create_task(rig.host("host-1").reconcile([given] if given else []))
        await rig.reached("host-1", f"before:{point}", within=30)
        if command:
            await rig.host("host-2").apply(command)
        else:
            await rig.host("host-2").delete("created")
        rig.release("host-1", f"before:{point}")
        await late
        wanted = {command.deployment_id: command} if command else {}
        assert await stored_rules(rig) == wanted, point
        for name in wanted:
            await rig.host("host-2").delete(name)
    assert_holds(await rig.collect())
