"""The count of due times sees what is lost, doubled, or taken twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from e2e import minutely as module
from e2e.hosts import HandlerCall
from e2e.minutely import Minutely

FIRST = datetime(2026, 10, 25, 0, 30, tzinfo=UTC)
LAST = FIRST + timedelta(minutes=2)
IDS = ("a", "b")


class Told:
    """In place of a release: what its objects and its record of calls say."""

    def __init__(self) -> None:
        self.runs = [run(each, FIRST + timedelta(minutes=minute)) for minute in range(3) for each in IDS]
        self.made = [call for each in self.runs for call in calls(each)]

    def objects(self, kind: str) -> list[dict[str, Any]]:
        assert kind == "runinv"
        return self.runs

    def calls(self) -> list[HandlerCall]:
        return self.made


def run(deployment_id: str, due: datetime, suffix: str = "") -> dict[str, Any]:
    name = f"{deployment_id}-{due:%H%M}{suffix}"
    return {
        "metadata": {"name": name, "creationTimestamp": (due + timedelta(seconds=2)).isoformat()},
        "spec": {"deploymentId": deployment_id, "dueTime": due.isoformat()},
        "status": {"phase": "Succeeded", "sessionId": f"sess-{name}"},
    }


def calls(of: dict[str, Any], session: str | None = None) -> list[HandlerCall]:
    name, saved = of["metadata"]["name"], session or of["status"]["sessionId"]
    told: list[tuple[Any, Any, str | None]] = [
        ("start_session", "begin", None),
        ("start_session", "end", saved),
        ("admit_turn", "begin", saved),
        ("admit_turn", "end", saved),
    ]
    return [HandlerCall(0.0, "h", call, phase, name, "", saw, None) for call, phase, saw in told]


def lost(told: Told) -> None:
    del told.runs[3]


def unfinished(told: Told) -> None:
    told.runs[3]["status"]["phase"] = "Running"


def doubled(told: Told) -> None:
    told.runs.append(run("a", FIRST, "-again"))
    told.made += calls(told.runs[-1])


def too_early(told: Told) -> None:
    told.runs.append(run("a", FIRST - timedelta(minutes=2)))
    told.made += calls(told.runs[-1])


def two_sessions(told: Told) -> None:
    told.made += calls(told.runs[2], "sess-another")


def never_called(told: Told) -> None:
    told.made = [call for call in told.made if call.run_id != told.runs[2]["metadata"]["name"]]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SETTLED_SECONDS", 0.0)


def counting(told: Told) -> Minutely:
    return Minutely(told, IDS, FIRST - timedelta(seconds=90), FIRST)  # type: ignore[arg-type]


def test_a_good_day() -> None:
    counting(Told()).check(LAST)
    told = Told()
    told.runs[2]["metadata"]["creationTimestamp"] = (FIRST + timedelta(minutes=1, seconds=9)).isoformat()
    assert counting(told).lateness() == 9.0
    assert counting(told).lateness(FIRST + timedelta(minutes=1)) == 9.0
    assert counting(told).lateness(LAST) == 2.0
    assert counting(told).lateness(LAST + timedelta(minutes=1)) == 0.0


def test_a_minute_that_began_while_they_were_applied_is_not_counted() -> None:
    told = Told()
    told.runs.append(run("a", FIRST - timedelta(minutes=1)))
    counting(told).check(LAST)


@pytest.mark.parametrize("wrong", [lost, unfinished, doubled, too_early, two_sessions, never_called])
def test_what_is_wrong_is_seen(wrong: Callable[[Told], None]) -> None:
    told = Told()
    wrong(told)
    with pytest.raises(AssertionError):
        counting(told).check(LAST)


def test_while_nobody_was_there_a_due_time_may_be_lost_and_not_doubled() -> None:
    told, away = Told(), (FIRST + timedelta(seconds=30), FIRST + timedelta(seconds=90))
    lost(told)
    counting(told).check(LAST, away)
    doubled(told)
    with pytest.raises(AssertionError, match="no due time has two runs"):
        counting(told).check(LAST, away)
