"""Which time rule was in force when, by the writes of schedules that the API server audited.

A write takes effect at some moment between its receipt and its end. So each version of a schedule has
one stretch in which it may have been the stored one: from its receipt to the end of the next write that
succeeded. Something held for certain where no version without it may have been the stored one. A write
of unknown outcome may have taken effect or not: it adds a possibility and ends no other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from tests.faults.history.due import is_due
from tests.faults.history.facts import History, Object, Span, Write
from tests.faults.history.objects import (
    exact,
    exact_text,
    field,
    in_order,
    may_have_acted,
    seconds,
    unknown,
)

SCHEDULES = "deploymentschedules"
_DELETED = "scheduler.astrabox.io/deleted"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a version of a schedule says."""

    cron: str
    zone: str
    enabled: bool
    payload: str
    active_since: float | None
    earlier: tuple[Earlier, ...] = ()
    """Rules that were replaced, as the object tells them."""

    @property
    def times(self) -> tuple[str, str, bool]:
        """What decides due times."""
        return self.cron, self.zone, self.enabled

    def due_at(self, due: float) -> bool:
        """Whether it is enabled, matches, and was active before the due time."""
        active = self.active_since is None or self.active_since < due
        return self.enabled and active and is_due(self.cron, self.zone, due)

    def owes(self, due: float) -> Earlier | None:
        """The replaced rule whose due time this is and is still to fire, as the object tells."""
        return next((each for each in self.earlier if not each.disabled and each.due_at(due)), None)

    def says(self, schedule: Mapping[str, Any]) -> bool:
        """Whether it is what AstraBox gives here."""
        return (
            self.cron == " ".join(str(schedule.get("cron")).split())
            and self.zone == schedule.get("timezone")
            and self.enabled == schedule.get("enabled", True)
            and exact_text(self.payload) == exact(schedule.get("payload"))
        )

    def equals(self, other: Rule) -> bool:
        """Whether both say the same to AstraBox."""
        same_payload = exact_text(self.payload) == exact_text(other.payload)
        return self.times == other.times and same_payload


@dataclass(frozen=True, slots=True)
class Earlier:
    """A replaced rule that still owes due times in (since, until]."""

    cron: str
    zone: str
    since: float
    until: float
    disabled: bool = False
    """A disable ended it: what has not fired by then never fires."""

    def due_at(self, due: float) -> bool:
        """Whether it owes this due time."""
        return self.since < due <= self.until and is_due(self.cron, self.zone, due)


@dataclass(frozen=True, slots=True)
class Version:
    """One stored state of a schedule; `rule` None: there was none."""

    rule: Rule | None
    possible: Span
    known: bool = True
    """False: the write did not tell what it wrote, so that it may be anything."""
    by: str = ""
    settled: float = -inf
    """From when it was surely stored, if ever."""
    origin: tuple[str, float] = ("", -inf)
    """Who wrote the time rule that it still has, and when that was done."""
    write: Write | None = None
    """What stored it; None: nothing in this history."""


Test = Callable[[Rule], bool]


class Rules:
    """The versions of every AstraBox Deployment's schedule; `without`: as if these writes had not been."""

    def __init__(self, history: History, without: Collection[Write] = ()) -> None:
        by_name: defaultdict[str, list[Write]] = defaultdict(list)
        left_out = {id(write) for write in without}
        for write in history.writes:
            if write.resource == SCHEDULES and not write.subresource and may_have_acted(write):
                by_name[write.name] += [] if id(write) in left_out else [write]
        self._versions: dict[str, list[Version]] = {}
        for name, writes in by_name.items():
            ordered = in_order(writes)
            self._versions.setdefault(_owner(name, ordered, history), []).extend(_versions(ordered))
        for name, stored in history.schedules.items():
            if name not in by_name:  # it was there before the history began
                always = Version(rule_of(stored), (-inf, inf), known=False)
                self._versions.setdefault(str(field(stored, "spec", "deploymentId")), []).append(always)

    @property
    def deployments(self) -> Sequence[str]:
        """Ids of all Deployments that ever had a schedule."""
        return sorted(self._versions)

    def versions(self, deployment: str) -> Sequence[Version]:
        """All versions, in order."""
        return self._versions.get(deployment, ())

    def certainly(self, deployment: str, holds: Test, begin: float, end: float) -> bool:
        """Whether the stored schedule surely passed the test at every moment of [begin, end]."""
        return self.first_doubt(deployment, holds, begin) > end

    def first_doubt(self, deployment: str, holds: Test, begin: float) -> float:
        """The first moment from `begin` on at which the schedule may not pass the test."""
        doubts = [
            max(begin, version.possible[0])
            for version in self.versions(deployment)
            if not _passes(version, holds) and version.possible[1] > begin
        ]
        return min(doubts, default=inf if self.versions(deployment) else begin)

    def possibly(self, deployment: str, holds: Test, begin: float, end: float) -> bool:
        """Whether it may have passed the test at some moment of [begin, end]."""
        return any(
            not version.known or _passes(version, holds)
            for version in self.versions(deployment)
            if version.possible[0] <= end and version.possible[1] >= begin
        )

    def possible(self, deployment: str, begin: float, end: float) -> Iterable[Version]:
        """The versions that may have been the stored one at some moment of [begin, end]."""
        return (
            version
            for version in self.versions(deployment)
            if version.possible[0] <= end and version.possible[1] >= begin
        )


def rule_of(stored: Object) -> Rule | None:
    """The rule that an object says, None if it has no spec or is what a deletion leaves for a while."""
    spec = field(stored, "spec")
    if spec is None or is_tombstone(stored):
        return None
    return Rule(
        cron=" ".join(str(spec.get("cron")).split()),
        zone=str(spec.get("timeZone")),
        enabled=spec.get("enabled", True) is True,
        payload=str(spec.get("payload")),
        active_since=seconds(spec.get("activeSince")),
        earlier=tuple(_earlier(each) for each in spec.get("earlierRules") or ()),
    )


def _earlier(told: Mapping[str, Any]) -> Earlier:
    since, until = seconds(told.get("activeSince")), seconds(told.get("activeUntil"))
    return Earlier(
        cron=" ".join(str(told.get("cron")).split()),
        zone=str(told.get("timeZone")),
        since=inf if since is None else since,
        until=-inf if until is None else until,
        disabled=told.get("disabled") is True,
    )


def is_tombstone(stored: Object) -> bool:
    """Marked as deleted, and in fact without a payload and disabled."""
    spec = field(stored, "spec")
    marked = _DELETED in (field(stored, "metadata", "labels") or {})
    return marked and spec.get("enabled") is False and spec.get("payload") == "{}"


def _passes(version: Version, holds: Test) -> bool:
    return version.known and version.rule is not None and holds(version.rule)


def _owner(name: str, writes: Iterable[Write], history: History) -> str:
    told = [field(write.after, "spec", "deploymentId") for write in writes]
    told.append(field(history.schedules.get(name), "spec", "deploymentId"))
    return next((str(each) for each in told if each is not None), name)


def _versions(writes: Sequence[Write]) -> list[Version]:
    versions = [Version(None, (-inf, inf))]
    for write in writes:
        gone = write.verb == "delete"
        rule = None if gone else rule_of(write.after or {})
        before = versions[-1]
        sure = not unknown(write) and write.completed is not None
        settled = write.completed if sure and write.completed is not None else inf
        same = rule is not None and before.rule is not None and rule.times == before.rule.times
        version = Version(
            rule=rule,
            possible=(write.received, inf),
            known=gone or field(write.after, "spec") is not None,
            by=write.by,
            settled=settled,
            origin=before.origin if same else (write.by, settled),
            write=write,
        )
        if sure:
            versions = [_ended(each, settled) for each in versions]
        versions.append(version)
    return versions


def _ended(version: Version, end: float) -> Version:
    return replace(version, possible=(version.possible[0], min(version.possible[1], end)))
