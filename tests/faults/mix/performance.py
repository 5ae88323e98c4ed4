"""One plan from the first process to the history: opened, carried out, healed, brought to rest, collected."""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from astrabox.host_deployments import DeploymentRecords
from astrabox.seams.scheduler import Schedule
from tests.faults.history.facts import Command, History
from tests.faults.mix.crew import Crew
from tests.faults.mix.drive import Done, Driver
from tests.faults.mix.plan import Density, plan, skews
from tests.faults.mix.steps import Step
from tests.faults.scenes.processes import host_settings, operator_settings
from tests.faults.scenes.schedules import stored_rules
from tests.faults.stage.plane import OwnPlane
from tests.faults.stage.rig import Rig

SETTINGS: Final[Mapping[str, str]] = {
    # Else a run that failed several times waits for minutes, and the end with it.
    **host_settings(RETRY_MAX_DELAY_SECONDS=15),
    # Longer than any fault of a plan; and what nobody was there for is cancelled before the end.
    **operator_settings(CATCH_UP_WINDOW_SECONDS=240),
}
SETTLE_SECONDS: Final = 300.0
_AT_REST_SECONDS: Final = 5.0
"""Between the last command and the first look at what is stored."""


@dataclass(frozen=True, slots=True)
class Troupe:
    """How many processes of each role."""

    hosts: int = 4
    operators: int = 3

    @property
    def host_names(self) -> tuple[str, ...]:
        """host-1 and so on."""
        return tuple(f"host-{number + 1}" for number in range(self.hosts))

    @property
    def operator_names(self) -> tuple[str, ...]:
        """operator-1 and so on."""
        return tuple(f"operator-{number + 1}" for number in range(self.operators))


@dataclass(frozen=True, slots=True)
class Performance:
    """What came of a plan."""

    seed: int
    history: History
    done: Done
    processes: Mapping[str, int]
    """Ends and starts, by kind and role."""
    differing: tuple[str, ...]
    """Deployments whose schedule was not as AstraBox's record says: before any host had reconciled anew where
    the last command was done and undisturbed, and of all once a host had reconciled in peace."""


async def perform(
    plane: OwnPlane,
    seed: int,
    seconds: float,
    density: Density | None = None,
    troupe: Troupe | None = None,
    *,
    logs: Path | None = None,
    watched: Callable[[Rig, Driver, Crew], None] = lambda *_: None,
) -> Performance:
    """Carry out the plan of `seed`; `watched` gets hold of what it is carried out with.

    `logs`: where the logs of all processes are kept.
    """
    troupe = troupe or Troupe()
    names = troupe.host_names, troupe.operator_names
    steps = plan(seed, seconds, *names, density)
    async with Rig.open(plane, seed=seed, settings=SETTINGS) as rig:
        crew = Crew(rig, *names, skews(seed, *names))
        driver = Driver(rig, crew, DeploymentRecords(rig.actors.deployments))
        watched(rig, driver, crew)
        try:
            async with crew.kept():
                wrong = await _from_plan_to_rest(rig, driver, steps)
                history = await rig.collect(settle=SETTLE_SECONDS)
        except BaseException as error:
            error.add_note(rig.timeline(60, 25))
            raise
        finally:
            if logs is not None:
                _keep_logs(rig, logs)
        return Performance(seed, history, driver.done, dict(crew.counts), wrong)


async def _from_plan_to_rest(rig: Rig, driver: Driver, steps: Sequence[Step]) -> tuple[str, ...]:
    """What differs once everything is healed."""
    records = DeploymentRecords(rig.actors.deployments)
    await driver.carry_out(steps)
    await asyncio.sleep(_AT_REST_SECONDS)
    stands = undisturbed(rig.journal.commands)
    undone = differing(records, await stored_rules(rig), stands)
    rig.note("the plan is over: everything is healed")
    await driver.heal()
    left = differing(records, await stored_rules(rig))
    await driver.end_schedules()
    return *(f"before it was healed: {each}" for each in undone), *left


def _keep_logs(rig: Rig, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for log in rig.actors.folder.glob("*.log"):
        shutil.copy(log, folder)


def undisturbed(commands: Sequence[Command]) -> set[str]:
    """Deployments whose last command was done, with no other one under way at the same time.

    What is stored of them is what that command says, without anybody's repair.
    """
    changes: defaultdict[str, list[Command]] = defaultdict(list)
    for command in commands:
        if command.op in ("apply", "delete") and command.deployment_id is not None:
            changes[command.deployment_id].append(command)
    return {deployment for deployment, own in changes.items() if _last_stands(own)}


def _last_stands(commands: Sequence[Command]) -> bool:
    *before, last = sorted(commands, key=lambda each: each.sent)
    return last.done and all(each.returned is not None and each.returned < last.sent for each in before)


def differing(
    records: DeploymentRecords, found: Mapping[str, Schedule], of: Collection[str] | None = None
) -> tuple[str, ...]:
    """What is not stored as AstraBox's records say; `of`: these Deployments only."""
    wanted = {
        rule.deployment_id: replace(rule, cron=" ".join(rule.cron.split()), payload=dict(rule.payload))
        for rule in records.all()
    }
    return tuple(
        f"{each!r:.60}: AstraBox has {wanted.get(each)}, stored is {found.get(each)}"
        for each in sorted(wanted.keys() | found.keys())
        if wanted.get(each) != found.get(each) and (of is None or each in of)
    )
