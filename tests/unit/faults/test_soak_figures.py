"""The table of a soak adds its rounds up."""

from __future__ import annotations

from tests.faults.history.facts import History, Outage, Violation
from tests.faults.history.summary import Summary
from tests.faults.mix.drive import Done
from tests.faults.mix.performance import Performance
from tests.faults.soak.figures import Figures


def a_round(*differing: str) -> tuple[Performance, Summary]:
    history = History(0.0, 660.0, [], [], [], [], {}, {}, outages=[Outage("etcd", 1.0, 2.0)])
    done = Done()
    done.steps.update({"kill": 90, "create": 60})
    performance = Performance(7, history, done, {"kill host": 70, "start host": 75}, differing)
    summary = Summary(
        lives={"host": 75},
        killed=80,
        outages=1,
        commands={"apply done": 60},
        due_certain=400,
        due_uncertain=20,
        fired=410,
        skipped=10,
        cancelled=3,
        phases={"schedule Succeeded": 407},
        calls=900,
        takeovers=40,
        lateness=[0.1, 0.2, 30.0],
    )
    return performance, summary


def test_rounds_are_added_up() -> None:
    figures = Figures(seed=7, began=0.0)
    for _ in range(2):
        figures.add(*a_round(), [])
    table = figures.table()
    for text in (
        "22 min in 2 rounds",
        "160 by SIGKILL; 140 kill host",
        "| process starts | 150 |",
        "| restarts of the store | 2 etcd |",
        "| faults | 180 kill |",
        "6 cancelled, 800 certain, 820 fired, 20 skipped",
        "1800, 80 changes of process",
        "p50 0.20 s, p99 30.00 s, max 30.00 s",
        "any other violation | 0 |",
    ):
        assert text in table


def test_violations_and_a_store_that_differs_are_told_by_guarantee() -> None:
    figures = Figures(seed=7, began=0.0)
    figures.add(*a_round("nightly"), [Violation("G1", "lost"), Violation("G1", "late")])
    assert "any other violation | 2 G1, 1 G10 |" in figures.table()
    assert figures.violations.total() == 3
