"""G10: what hosts store of a schedule is what AstraBox has asked for, and nothing else ever.

Each write that changes a schedule, its deletion included, must say what a command says that its host was
given and is not long over, or what was stored before a command that failed. It must not be older than
what another command has been acknowledged for since.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from tests.faults.history.facts import Command, History
from tests.faults.history.presence import Attendance
from tests.faults.history.rules import Rule, Rules, Version
from tests.faults.history.slack import Slack


@dataclass(frozen=True, slots=True)
class Unasked:
    """A stored state that nobody had asked for."""

    deployment: str
    version: Version
    why: str


@dataclass(frozen=True, slots=True)
class _Saying:
    """What a command says of one Deployment; `schedule` None: it is to have none."""

    command: Command
    schedule: Mapping[str, Any] | None

    @property
    def single(self) -> bool:
        """Whether it is a change of this Deployment alone, later than what AstraBox listed before."""
        return self.command.op != "reconcile"

    def says(self, rule: Rule | None) -> bool:
        """Whether this is what it wants stored."""
        if self.schedule is None or rule is None:
            return self.schedule is None and rule is None
        return rule.says(self.schedule)


def unasked_for(history: History, slack: Slack, there: Attendance, rules: Rules) -> list[Unasked]:
    """Every change of a schedule by a host or an operator that no command explains."""
    said = _sayings(history, rules.deployments)
    judge = _Judge(slack, there, rules)
    found = []
    for deployment in rules.deployments:
        for version in rules.versions(deployment):
            why = judge.objection(deployment, version, said[deployment])
            if why is not None:
                found.append(Unasked(deployment, version, why))
    return found


def _sayings(history: History, deployments: Sequence[str]) -> dict[str, list[_Saying]]:
    """The commands about each Deployment; a list that lacks it says that it is to be gone."""
    said: dict[str, list[_Saying]] = {each: [] for each in deployments}
    for command in history.commands:
        if command.op == "reconcile":
            given = {str(each.get("deployment_id")): each for each in command.given}
            for deployment in deployments:
                said[deployment].append(_Saying(command, given.get(deployment)))
        elif command.op != "enqueue" and command.deployment_id in said:
            said[command.deployment_id].append(_Saying(command, command.schedule))
    return said


class _Judge:
    def __init__(self, slack: Slack, there: Attendance, rules: Rules) -> None:
        self._slack = slack
        self._there = there
        self._rules = rules

    def objection(self, deployment: str, version: Version, said: Sequence[_Saying]) -> str | None:
        """Why this version should not have been stored; None for one that may be, or that changes nothing."""
        if version.write is None or not version.known or version.by in self._slack.foreign_writers:
            return None
        if any(_equal(each.rule, version.rule) for each in self._before(deployment, version)):
            return None
        reasons = [each for each in said if self._explains(deployment, version, each)]
        if not reasons:
            return "nobody asked for that"
        newer = [self._overruled(deployment, version, each, said) for each in reasons]
        if None in newer:
            return None
        command = next(each for each in newer if each is not None)
        return f"{command.op} in {command.host}, which was acknowledged, is newer"

    def _before(self, deployment: str, version: Version) -> Iterator[Version]:
        """What may have been stored when this write came."""
        came = version.possible[0]
        found = self._rules.possible(deployment, came, came)
        return (each for each in found if each is not version and each.known)

    def _explains(self, deployment: str, version: Version, saying: _Saying) -> bool:
        """Whether the writing host may have written this for the sake of that command."""
        command, came = saying.command, version.possible[0]
        begun = command.sent - self._slack.answer
        if command.host != version.by or not begun <= came <= self._latest_write(command):
            return False
        refused = saying.single and command.rejected
        return (saying.says(version.rule) and not refused) or self._restores(deployment, version, saying)

    def _latest_write(self, command: Command) -> float:
        """Until when a request for this command, or one that undoes it, may come to the API server."""
        if command.unavailable and command.op != "reconcile":
            return self._over(command)  # it is undone as soon as the store answers
        if command.returned is None or command.unavailable:
            return self._answered_or_gone(command) + self._slack.straggle
        return command.returned + self._slack.answer

    def _over(self, command: Command) -> float:
        """The end of the process that got it, and what is still on its way then."""
        life = self._there.life_at(command.host, command.sent)
        return inf if life is None or life.ended is None else life.ended + self._slack.straggle

    def _answered_or_gone(self, command: Command) -> float:
        """When nothing more is done for it but to undo it."""
        if command.returned is not None:
            return command.returned
        life = self._there.life_at(command.host, command.sent)
        return inf if life is None or life.ended is None else life.ended

    def _restores(self, deployment: str, version: Version, saying: _Saying) -> bool:
        """Whether it is what was stored before a command that failed, or whose answer nobody has heard."""
        command = saying.command
        if not saying.single or command.done or command.rejected:
            return False
        until = min(self._answered_or_gone(command), version.possible[0])
        before = [
            each for each in self._rules.possible(deployment, command.sent, until) if each is not version
        ]
        return any(_equal(each.rule, version.rule) if each.known else each.write is None for each in before)

    def _overruled(
        self, deployment: str, version: Version, reason: _Saying, said: Sequence[_Saying]
    ) -> Command | None:
        """An acknowledged command that is newer than this reason and says something else."""
        for other in said:
            command = other.command
            newer = (
                other.single
                and command.done
                and not other.says(version.rule)
                and self._is_newer(command, reason)
                and self._stands(deployment, version, other)
            )
            if newer and (reason.single or not self._listed_later(version, command, said)):
                return command
        return None

    def _is_newer(self, command: Command, than: _Saying) -> bool:
        """AstraBox changes its record first: a list handed over before the answer may lack the change.

        Of two commands under way at once the one that was clearly given later is the newer one.
        """
        assert command.returned is not None
        if than.single:
            over = min(self._answered_or_gone(than.command), than.command.sent + self._slack.given)
            return command.sent >= over
        return command.returned > than.command.sent

    def _stands(self, deployment: str, version: Version, acknowledged: _Saying) -> bool:
        """Whether that command had been answered, or was stored, before this write came."""
        command, came = acknowledged.command, version.possible[0]
        assert command.returned is not None
        return command.returned <= came or any(
            each.by == command.host and command.sent <= each.possible[0] and each.settled <= came
            for each in self._rules.versions(deployment)
            if each.known and acknowledged.says(each.rule)
        )

    def _listed_later(self, version: Version, command: Command, said: Sequence[_Saying]) -> bool:
        """Whether a change that was not over before that command says this, so that a list may have it."""
        return any(
            each.single
            and each.says(version.rule)
            and each.command.sent <= version.possible[0]
            and self._answered_or_gone(each.command) > command.sent
            for each in said
        )


def _equal(one: Rule | None, other: Rule | None) -> bool:
    return one is other if one is None or other is None else one.equals(other)
