"""What the demo shows: acts, facts that were checked, the closing table."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread

_BOLD, _DIM, _GREEN, _RED, _PLAIN = "\033[1m", "\033[2m", "\033[32m", "\033[31m", "\033[0m"


@dataclass
class Screen:
    """Writes to standard output; colours and moving lines only on a terminal."""

    checks: list[tuple[bool, str]] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    def act(self, title: str) -> None:
        """Begin a part of the story."""
        print(f"\n{self._paint(_BOLD, title)}", flush=True)

    def say(self, text: str) -> None:
        """Say what happens, in plain words."""
        print(f"  {text}", flush=True)

    def show(self, command: str, output: str) -> None:
        """Show a command as it was run, and what it printed."""
        print(self._paint(_DIM, f"  $ {command}"))
        for line in output.rstrip().splitlines():
            print(f"  {line}".rstrip(), flush=True)

    def check(self, *, holds: bool, claim: str, seen: str = "") -> None:
        """Record a fact; a claim that does not hold makes the demo fail at its end."""
        self.checks.append((holds, claim))
        mark = self._paint(_GREEN, "ok ") if holds else self._paint(_RED, "NOT")
        print(f"  {mark} {claim}" + (self._paint(_DIM, f"  ({seen})") if seen else ""), flush=True)

    @contextmanager
    def waiting(self, text: str, seconds: float = 0.0) -> Iterator[None]:
        """Show that time passes while the body runs: on a terminal what is left of `seconds`, else a line."""
        if not sys.stdout.isatty():
            self.say(f"{text} ...")
            yield
            return
        done = Event()
        ticker = Thread(target=self._tick, args=(text, seconds, done), daemon=True)
        ticker.start()
        try:
            yield
        finally:
            done.set()
            ticker.join()
            print("\r\033[K", end="", flush=True)

    def summary(self) -> bool:
        """Print the table of what was checked; whether all of it holds."""
        self.act("What was seen")
        width = max((len(claim) for _, claim in self.checks), default=0)
        for holds, claim in self.checks:
            print(f"  {claim:<{width}}  {self._paint(_GREEN, 'yes') if holds else self._paint(_RED, 'NO')}")
        failed = sum(not holds for holds, _ in self.checks)
        took = time.monotonic() - self._began
        verdict = f"{failed} of {len(self.checks)} did not hold" if failed else f"all {len(self.checks)} hold"
        print(f"\n  {self._paint(_BOLD, verdict)}; {took:.0f} s", flush=True)
        return not failed

    @staticmethod
    def _tick(text: str, seconds: float, done: Event) -> None:
        began, shown = time.monotonic(), ""
        while not done.wait(0.2):
            passed = time.monotonic() - began
            now = f"{max(seconds - passed, 0):.0f} s left" if seconds else f"{passed:.0f} s"
            if now != shown:
                print(f"\r\033[K  {text} ... {now}", end="", flush=True)
                shown = now

    @staticmethod
    def _paint(colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if sys.stdout.isatty() else text
