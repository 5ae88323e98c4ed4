"""What the harness itself did and saw, kept until it becomes facts."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.faults.history.facts import Command, Life, Outage, Role, Span
from tools.controlplane.processes import End

_OPEN = float("inf")


@dataclass
class LifeSoFar:
    """A Life that goes on."""

    name: str
    role: Role
    pid: int
    begun: float
    ready: float | None = None
    asked_to_end: float | None = None
    end: End | None = None


@dataclass
class Journal:
    """Times are true seconds since the epoch."""

    lives: list[LifeSoFar] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    notes: list[tuple[float, str]] = field(default_factory=list)
    _outages: dict[int, tuple[str, float, float]] = field(default_factory=dict)
    _hindered: dict[int, tuple[str, float, float]] = field(default_factory=dict)
    _frozen: dict[int, tuple[str, float, float]] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def note(self, text: str) -> None:
        """Add a line to the timeline."""
        self.notes.append((time.time(), text))

    def begin(self, name: str, role: Role, pid: int) -> LifeSoFar:
        """A process has been started."""
        life = LifeSoFar(name, role, pid, time.time())
        self.lives.append(life)
        self.note(f"{name} is started as process {pid}")
        return life

    def latest(self, name: str) -> LifeSoFar:
        """The latest life of this name. Raises KeyError."""
        for life in reversed(self.lives):
            if life.name == name:
                return life
        raise KeyError(f"{name} was never started")

    def ended(self, end: End) -> None:
        """A process has ended."""
        for life in self.lives:
            if life.pid == end.pid and life.name == end.name:
                life.end = end
                self.notes.append((end.at, f"{end.name} has ended with code {end.code}"))

    def hinder(self, name: str) -> int:
        """From now on this process is hindered; the number ends it."""
        return self._open(self._hindered, name)

    def unhinder(self, number: int) -> None:
        """The end of it."""
        self._close(self._hindered, number)

    @contextmanager
    def hindered(self, *names: str) -> Iterator[None]:
        """These processes are hindered while this is entered."""
        numbers = [self.hinder(name) for name in names]
        try:
            yield
        finally:
            for number in numbers:
                self.unhinder(number)

    def add_hindered(self, name: str, span: Span) -> None:
        """A span that was learned of later."""
        self._hindered[next(self._numbers)] = (name, *span)

    def freeze(self, name: str) -> None:
        """SIGSTOP has been sent."""
        self._open(self._frozen, name)

    def add_frozen(self, name: str, begun: float) -> None:
        """It has stopped itself, at `begun`."""
        self._frozen[next(self._numbers)] = (name, begun, _OPEN)

    def thaw(self, name: str) -> None:
        """SIGCONT has been sent."""
        for number, (frozen, _, ended) in list(self._frozen.items()):
            if frozen == name and ended == _OPEN:
                self._close(self._frozen, number)

    def begin_outage(self, what: str) -> int:
        """From now on something is away for everybody; the number ends it."""
        self.note(f"{what}: away")
        return self._open(self._outages, what)

    def end_outage(self, number: int) -> None:
        """It answers again."""
        self.note(f"{self._outages[number][0]}: back")
        self._close(self._outages, number)

    def outages(self, now: float) -> list[Outage]:
        """So far."""
        return [Outage(what, begun, min(ended, now)) for what, begun, ended in self._outages.values()]

    def facts(self, now: float) -> list[Life]:
        """The lives so far."""
        return [self._fact(life, now) for life in self.lives]

    def _fact(self, life: LifeSoFar, now: float) -> Life:
        ended = None if life.end is None else life.end.at
        until = now if ended is None else ended
        return Life(
            life.name,
            life.role,
            life.pid,
            life.begun,
            life.ready,
            ended,
            None if life.end is None else life.end.code,
            life.asked_to_end,
            _within(self._frozen.values(), life, until),
            _within(self._hindered.values(), life, until),
        )

    def _open(self, spans: dict[int, tuple[str, float, float]], what: str) -> int:
        number = next(self._numbers)
        spans[number] = (what, time.time(), _OPEN)
        return number

    def _close(self, spans: dict[int, tuple[str, float, float]], number: int) -> None:
        what, begun, ended = spans[number]
        spans[number] = (what, begun, min(ended, time.time()))


def _within(spans: Any, life: LifeSoFar, until: float) -> tuple[Span, ...]:
    found: Sequence[Span] = [
        (max(begun, life.begun), min(ended, until))
        for name, begun, ended in spans
        if name == life.name and begun <= until and ended >= life.begun
    ]
    return tuple(sorted(found))
