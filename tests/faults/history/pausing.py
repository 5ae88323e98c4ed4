"""G5: some seconds after a disable or delete no scheduled run is started any more."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from tests.faults.history.facts import Command, Violation
from tests.faults.history.rules import Version
from tests.faults.history.runs import Run
from tests.faults.history.view import View, of_run


def paused(view: View) -> Iterator[Violation]:
    """Every disable and delete that is known to be done, until somebody may have enabled it again."""
    for command in view.history.commands:
        if not _pauses(command) or command.returned is None or command.deployment_id is None:
            continue
        deployment = command.deployment_id
        until = min(_enabling_command(view, command), _enabling_write(view, deployment, command.sent))
        yield from _started(view, command, command.returned, until)
        yield from _enabled_by_nobody(view, command, command.returned)


def _started(view: View, command: Command, returned: float, until: float) -> Iterator[Violation]:
    """Counted from the answer: what had started goes on."""
    bound = returned + view.bounds.pause_visibility
    for run in _scheduled(view, command.deployment_id):
        first, begun = run.calls[0], _start(view, run)
        late = bound < begun < until
        if late and not view.there.thawed(view.there.life_of(first), first.begun):
            what = (
                f"it was started at {view.when(begun)}, {begun - returned:.2f} s after its "
                f"schedule was paused ({command.op} in {command.host})"
            )
            yield of_run("G5", what, run)


def _start(view: View, run: Run) -> float:
    """Its first call ever; if another process makes that, the start which the one before it had saved.

    Nobody knows whether a process that is gone had called already, so its run goes on (G4).
    """
    first = run.calls[0]
    saved = next((said for said in run.said if said.sure and said.status.get("attempts")), None)
    if saved is None or view.there.life_at(saved.write.by, saved.ended) == view.there.life_of(first):
        return first.begun
    return min(saved.ended, first.begun)


def _scheduled(view: View, deployment: str | None) -> list[Run]:
    return [
        run
        for run in view.runs.values()
        if run.deployment == deployment and run.trigger == "schedule" and run.calls
    ]


def _pauses(command: Command) -> bool:
    disables = (
        command.op == "apply" and command.schedule is not None and command.schedule.get("enabled") is False
    )
    return command.done and (disables or command.op == "delete")


def may_enable(command: Command, deployment: str) -> bool:
    """Whether this command may leave the schedule enabled; one that failed or was not answered may, too."""
    if command.op == "apply" and command.deployment_id == deployment:
        return command.schedule is None or command.schedule.get("enabled", True) is not False
    if command.op == "reconcile":
        mine = [each for each in command.given if each.get("deployment_id") == deployment]
        return any(each.get("enabled", True) is not False for each in mine)
    return False


def _enabling_command(view: View, command: Command) -> float:
    """When the next one that may enable it was sent; at once if one was under way: who was first?

    A reconcile that began before the pause was answered may not undo it: its list may be older.
    """
    assert command.returned is not None
    assert command.deployment_id is not None
    times = [inf]
    for other in view.history.commands:
        if other is command or not may_enable(other, command.deployment_id):
            continue
        if other.op == "reconcile":
            times += [other.sent] if other.sent >= command.returned else []
        elif other.sent >= command.sent:
            times.append(other.sent)
        elif _under_way(view, other, command):
            times.append(command.sent)
    return min(times)


def _under_way(view: View, other: Command, command: Command) -> bool:
    """Whether a command that was sent earlier was not surely over: its host may have been still at it."""
    if other.returned is not None:
        return other.returned >= command.sent
    life = view.there.life_at(other.host, other.sent)
    return life is None or view.there.end(life) >= command.sent


def _enabling_write(view: View, deployment: str, since: float) -> float:
    """When it was stored as enabled again; whoever did that, firing is then in order."""
    return min((version.possible[0] for version in _enabled_after(view, deployment, since)), default=inf)


def _enabled_after(view: View, deployment: str, since: float) -> list[Version]:
    return [
        version
        for version in view.rules.versions(deployment)
        if version.possible[0] > since
        and (not version.known or (version.rule is not None and version.rule.enabled))
    ]


def _enabled_by_nobody(view: View, command: Command, returned: float) -> Iterator[Violation]:
    """A host stored it as enabled though nobody had asked for that since the pause.

    A request that was on its way when its host died may arrive late, so an apply without a final answer
    explains it as well as one that was under way at the same time. A reconcile does only if it began later.
    """
    deployment = command.deployment_id
    assert deployment is not None
    for version in _enabled_after(view, deployment, command.sent):
        begun = version.possible[0]
        if not version.known or version.by in view.slack.foreign_writers:
            return
        asked = [
            each for each in view.history.commands if may_enable(each, deployment) and each.sent <= begun
        ]
        if any(_explains(each, command, returned) for each in asked):
            return
        what = (
            f"{version.by} enabled the schedule at {view.when(begun)} though it had been paused at "
            f"{view.when(returned)} and nobody asked for it since"
        )
        yield Violation("G5", what, deployment_id=deployment)
        return


def _explains(enabling: Command, command: Command, returned: float) -> bool:
    if enabling.op == "reconcile":
        return enabling.sent >= returned
    return enabling.returned is None or enabling.returned >= command.sent or enabling.unavailable
