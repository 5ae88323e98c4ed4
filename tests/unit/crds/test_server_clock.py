"""The API server's time as the common clock."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from astrabox_scheduler_crds.server_clock import DRIFT, ServerClock

EPOCH = 1_790_000_000.0


@dataclass
class Host:
    """A host whose wall clock is off by `error` seconds; the API server's is right."""

    error: float
    elapsed: float = 0.0

    def clock(self) -> ServerClock:
        return ServerClock(lambda: EPOCH + self.elapsed + self.error, lambda: 50.0 + self.elapsed)

    def ask(self, clock: ServerClock, latency: float = 0.01) -> None:
        sent = 50.0 + self.elapsed
        self.elapsed += latency
        date = datetime.fromtimestamp(int(EPOCH + self.elapsed), UTC)
        clock.observe(date, sent, 50.0 + self.elapsed)


def test_before_the_first_answer_it_is_the_local_clock() -> None:
    assert Host(7.0).clock().timestamp() == EPOCH + 7.0


@pytest.mark.parametrize("error", [0.0, 0.3, -0.3])
def test_a_clock_inside_the_bounds_is_used_as_it_is(error: float) -> None:
    host = Host(error, elapsed=0.5)
    clock = host.clock()
    host.ask(clock)
    assert clock.timestamp() == pytest.approx(EPOCH + host.elapsed + error)
    assert clock.skew() == 0.0


@pytest.mark.parametrize("error", [30.0, -30.0, 86_400.0, -86_400.0])
def test_a_wrong_clock_is_corrected_to_within_a_second(error: float) -> None:
    host = Host(error, elapsed=0.5)
    clock = host.clock()
    host.ask(clock)
    assert abs(clock.timestamp() - (EPOCH + host.elapsed)) <= 1.02
    assert clock.skew() == pytest.approx(error, abs=1.02)


@pytest.mark.parametrize("error", [30.0, -30.0])
def test_answers_at_other_fractions_of_a_second_narrow_the_bounds(error: float) -> None:
    host = Host(error)
    clock = host.clock()
    for _ in range(40):
        host.elapsed += 1.07
        host.ask(clock)
    assert abs(clock.timestamp() - (EPOCH + host.elapsed)) < 0.1


@pytest.mark.parametrize("error", [1.5, 30.0, -30.0])
@pytest.mark.parametrize("fraction", [0.0, 0.3, 0.99])
def test_a_wrong_clock_is_never_ahead_of_the_server(error: float, fraction: float) -> None:
    """FI-17: else what is due fires before its due time."""
    host = Host(error, elapsed=fraction)
    clock = host.clock()
    for _ in range(20):
        host.ask(clock)
        assert clock.timestamp() <= EPOCH + host.elapsed
        host.elapsed += 1.37


def test_a_step_of_the_local_clock_does_not_move_it() -> None:
    """FI-08: the due times in between neither fire early nor again."""
    host = Host(0.0, elapsed=0.5)
    clock = host.clock()
    host.ask(clock)
    before = clock.timestamp()
    host.error += 7200.0
    assert abs(clock.timestamp() - before) <= 1.0


def test_a_step_of_the_server_is_followed() -> None:
    host = Host(0.0, elapsed=0.5)
    clock = host.clock()
    host.ask(clock)
    clock.observe(datetime.fromtimestamp(EPOCH + 3600, UTC), 50.5, 50.51)
    assert abs(clock.timestamp() - (EPOCH + 3600)) <= 1.02


def test_bounds_widen_with_age_so_that_a_drift_is_never_a_jump() -> None:
    host = Host(100.0, elapsed=0.5)
    clock = host.clock()
    host.ask(clock)
    first = clock.timestamp() - host.elapsed
    host.elapsed += 1000.0
    assert clock.timestamp() - host.elapsed - first == pytest.approx(-1000 * DRIFT, abs=1e-3)


@pytest.mark.parametrize("error", [0.0, 0.9, -0.9, 30.0, -30.0])
@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.95])
def test_the_earliest_is_never_too_late(error: float, fraction: float) -> None:
    """G5: what was read then is at least as old as it says, whatever the local clock is wrong by."""
    host = Host(error, elapsed=fraction)
    clock = host.clock()
    host.ask(clock, latency=0.04)
    begun, at = 50.0 + host.elapsed, EPOCH + host.elapsed
    host.elapsed += 2.0
    assert at - 1.05 <= clock.earliest(begun).timestamp() <= at


def test_the_earliest_before_the_first_answer_is_by_the_local_clock() -> None:
    clock = Host(7.0, elapsed=3.0).clock()
    assert clock.earliest(52.0).timestamp() == EPOCH + 7.0 + 2.0
