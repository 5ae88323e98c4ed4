"""G10: a stop ends within its bound, and what apply, delete and reconcile answered is what is stored."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from typing import Any

from tests.faults.history.facts import Command, Life, Violation
from tests.faults.history.rules import Rule
from tests.faults.history.spans import meets
from tests.faults.history.view import View


def stopped(view: View) -> Iterator[Violation]:
    """Every host that was asked to end once it was ready. The bound holds in an outage, too."""
    for life in view.there.lives("host"):
        asked = life.asked_to_end
        if asked is None or life.ready is None or life.ready > asked:
            continue
        end, limit = view.there.end(life), view.bounds.stop_within + view.slack.clock
        blocked = meets([*life.frozen, *_own_blocks(view, life)], asked, end)
        if blocked or (life.ended is not None and life.ended < asked):
            continue
        took = end - asked
        if took > limit:
            told = "has not ended" if life.ended is None else "ended"
            what = (
                f"host {life.name} ({life.pid}) {told} {took:.1f} s after it was asked, allowed: {limit:g} s"
            )
            yield Violation("G10", what)
        elif life.ended is not None and life.code not in (0, -signal.SIGKILL):
            what = f"host {life.name} ({life.pid}) ended with code {life.code} after it was asked to"
            yield Violation("G10", what)


def stored(view: View) -> Iterator[Violation]:
    """What was answered as done is stored by then."""
    for command in view.history.commands:
        if not command.done or command.deployment_id is None or command.returned is None:
            continue
        if command.op == "apply" and command.schedule is not None:
            yield from _applied(view, command, command.schedule, command.returned)
        elif command.op == "delete":
            yield from _removed(view, command, command.returned)


def changed_by_nobody(view: View) -> Iterator[Violation]:
    """A change of a schedule that no command explains, see `asked`; whatever repairs it later."""
    for each in view.unasked:
        done = "deleted it" if each.version.rule is None else "changed it"
        what = f"{each.version.by} {done} at {view.when(each.version.possible[0])}: {each.why}"
        yield Violation("G10", what, deployment_id=each.deployment)


def at_rest(view: View) -> Iterator[Violation]:
    """At the end each schedule is as its last change left it.

    Judged where the last change was answered as done, and nothing that may have come after it, nor a
    hand, has touched it since: not a command under way at the same time or without a final answer, nor a
    reconcile, nor a host that started while it was made.
    """
    for deployment in view.rules.deployments:
        changes = [each for each in view.history.commands if _touches(each, deployment)]
        last = max(changes, key=lambda each: each.sent, default=None)
        if last is None or not last.done or last.returned is None or last.op == "reconcile":
            continue
        if any(_may_follow(each, last) for each in changes if each is not last) or _disturbed(
            view, deployment, last
        ):
            continue
        final = [rule for rule in _final(view, deployment) if rule is not None]
        if last.op == "delete" and final:
            yield Violation("G10", "it was deleted and is there at the end", deployment_id=deployment)
        elif (
            last.op == "apply"
            and last.schedule is not None
            and not any(each.says(last.schedule) for each in final)
        ):
            what = "its schedule at the end is not the one that was applied last"
            yield Violation("G10", what, deployment_id=deployment)


def _own_blocks(view: View, life: Life) -> list[tuple[float, float]]:
    return [span for span in view.there.disturbances(life) if span not in life.hindered]


def _applied(
    view: View, command: Command, schedule: Mapping[str, Any], returned: float
) -> Iterator[Violation]:
    """Or another command that was given meanwhile has overtaken it: then nothing is to be written."""
    if _overtaken(view, command, returned):
        return
    versions = view.rules.possible(command.deployment_id or "", command.sent, returned)
    if not any(not each.known or (each.rule is not None and each.rule.says(schedule)) for each in versions):
        what = (
            f"apply in {command.host} was answered at {view.when(returned)}, and no such schedule was stored"
        )
        yield Violation("G10", what, deployment_id=command.deployment_id)


def _overtaken(view: View, command: Command, returned: float) -> bool:
    return any(
        each.op in ("apply", "delete")
        and each.deployment_id == command.deployment_id
        and command.sent < each.sent <= returned
        for each in view.history.commands
    )


def _removed(view: View, command: Command, returned: float) -> Iterator[Violation]:
    deployment = command.deployment_id or ""
    if _overtaken(view, command, returned):
        return
    if view.rules.versions(deployment) and view.rules.certainly(
        deployment, lambda _: True, command.sent, returned
    ):
        what = f"delete in {command.host} was answered at {view.when(returned)}, and it was there throughout"
        yield Violation("G10", what, deployment_id=deployment)


def _touches(command: Command, deployment: str) -> bool:
    if command.op == "reconcile":
        return True  # what is not in its list it removes
    mine = command.op in ("apply", "delete") and command.deployment_id == deployment
    return mine and not command.rejected


def _may_follow(command: Command, last: Command) -> bool:
    return command.returned is None or command.returned >= last.sent or command.unavailable


def _disturbed(view: View, deployment: str, last: Command) -> bool:
    """A hand has written it since, or a host read AstraBox's records while they changed."""
    assert last.returned is not None
    since = view.rules.possible(deployment, last.returned, view.history.ended)
    by_hand = any(each.by in view.slack.foreign_writers or not each.known for each in since)
    return by_hand or any(
        life.begun <= last.returned and (life.ready is None or life.ready >= last.sent)
        for life in view.there.lives("host")
    )


def _final(view: View, deployment: str) -> list[Rule | None]:
    versions = view.rules.possible(deployment, view.history.ended, view.history.ended)
    return [each.rule for each in versions]
