"""What the tests of the provider share."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from astrabox_scheduler_kubernetes.timing import Pauses


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was told so far, without what is for those who look for details."""
    caplog.set_level(logging.DEBUG)

    def told() -> list[str]:
        shown = [each for each in caplog.records if each.levelno >= logging.INFO]
        return [f"{each.levelname} {each.getMessage()}" for each in shown]

    return told


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that are asked for, in seconds; none is made."""
    asked: list[float] = []
    following = Pauses.next

    def record(self: Pauses, wanted: float | None = None) -> float:
        asked.append(following(self, wanted))
        return 0.0

    monkeypatch.setattr(Pauses, "next", record)
    return asked
