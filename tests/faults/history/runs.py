"""What is known of each run: its creates, what was written into its status, its calls, what was left."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tests.faults.history.facts import Call, History, Object, Write
from tests.faults.history.objects import FINISHED, in_order, may_have_acted, seconds, unknown
from tests.faults.history.objects import field as at

RUNS = "runinvocations"


@dataclass(frozen=True, slots=True)
class Said:
    """One write of a run's status, and the whole status after it."""

    write: Write
    status: Mapping[str, Any]

    @property
    def sure(self) -> bool:
        """Whether it is known to have been carried out."""
        return not unknown(self.write)

    @property
    def ended(self) -> float:
        """When it was surely there."""
        return self.write.received if self.write.completed is None else self.write.completed


@dataclass
class Run:
    """One run, by its name."""

    name: str
    final: Object | None = None
    writes: list[Write] = field(default_factory=list)
    """All that may have been carried out, in order."""
    calls: list[Call] = field(default_factory=list)
    """By the time at which they began."""

    @cached_property
    def creates(self) -> list[Write]:
        """Creates that were carried out, or may have been."""
        return [write for write in self.writes if write.verb == "create"]

    @cached_property
    def created(self) -> Write | None:
        """The create that made it, as far as it is known; of several that may have, the first."""
        sure = [write for write in self.creates if write.succeeded]
        doubtful = self.creates if self.final is not None or self.calls else []
        return next(iter(sure or doubtful), None)

    @cached_property
    def deletes(self) -> list[Write]:
        """Deletes that were carried out, or may have been."""
        return [write for write in self.writes if write.verb == "delete"]

    @cached_property
    def exists(self) -> bool:
        """Whether there was such a run for certain."""
        return self.final is not None or any(write.succeeded for write in self.writes) or bool(self.calls)

    @cached_property
    def spec(self) -> Mapping[str, Any]:
        """What is run, as it was created."""
        told = [at(self.final, "spec"), *(at(write.after, "spec") for write in self.creates)]
        return next((each for each in told if each), {})

    @cached_property
    def deployment(self) -> str:
        """Id of the AstraBox Deployment."""
        return str(self.spec.get("deploymentId", self.calls[0].deployment_id if self.calls else ""))

    @cached_property
    def trigger(self) -> str:
        """What made it run."""
        return str(self.spec.get("trigger", self.calls[0].trigger if self.calls else "manual"))

    @cached_property
    def due(self) -> float | None:
        """Its due time in seconds."""
        told = self.spec.get("dueTime", self.calls[0].scheduled_for if self.calls else None)
        return seconds(told)

    @cached_property
    def said(self) -> list[Said]:
        """Everything that was written into its status."""
        return [
            Said(write, status)
            for write in self.writes
            if write.subresource == "status" and (status := at(write.after, "status")) is not None
        ]

    @cached_property
    def status(self) -> Mapping[str, Any]:
        """Its last status; of a run that was deleted the last one that is known."""
        if self.final is not None:
            return at(self.final, "status") or {}
        return self.said[-1].status if self.said else {}

    @property
    def phase(self) -> str:
        """Its last phase."""
        return str(self.status.get("phase", "Queued"))

    @cached_property
    def finished(self) -> Said | None:
        """The first write that surely ended it."""
        ends = (said for said in self.said if said.sure and said.status.get("phase") in FINISHED)
        return next(ends, None)

    def number(self, name: str) -> int:
        """A counter of its last status."""
        value = self.status.get(name, 0)
        return value if isinstance(value, int) else 0


def runs_of(history: History) -> dict[str, Run]:
    """All runs that were ever seen, by name."""
    found: defaultdict[str, list[Write]] = defaultdict(list)
    for write in history.writes:
        if write.resource == RUNS and may_have_acted(write):
            found[write.name].append(write)
    calls: defaultdict[str, list[Call]] = defaultdict(list)
    for call in sorted(history.calls, key=lambda each: each.begun):
        calls[call.run_id].append(call)
    names = sorted(found.keys() | calls.keys() | history.runs.keys())
    return {
        name: Run(name, history.runs.get(name), in_order(found.get(name, [])), calls.get(name, []))
        for name in names
    }
