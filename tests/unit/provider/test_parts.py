"""The heap of waiting runs, the shared look at schedules, the rows of the history."""

import asyncio
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from annotated_types import Le

from astrabox_scheduler_client.confirm import ONE_BY_ONE, Confirmed
from astrabox_scheduler_client.errors import Unreachable
from astrabox_scheduler_crds.deletion import DELETED_KEPT
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import Origin, Phase, RunInvocation, RunSpec, RunStatus
from astrabox_scheduler_crds.transitions import (
    Cancellation,
    RetryPolicy,
    TransitionError,
    with_attempt,
    with_cancellation,
    with_failure,
    with_release,
)
from astrabox_scheduler_kubernetes.confirming import Confirming
from astrabox_scheduler_kubernetes.ledger import newest_first, row
from astrabox_scheduler_kubernetes.settings import Settings
from astrabox_scheduler_kubernetes.timing import Pauses, Timing
from astrabox_scheduler_kubernetes.waiting import KEPT_PAYLOAD, KEPT_RUNS, Entry, Waiting, progress_of

NOW = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)


def run(name: str = "r", payload: str = "{}", at: datetime | None = None, **status: Any) -> RunInvocation:
    return RunInvocation(
        metadata=ObjectMeta(name=name, creation_timestamp=NOW),
        spec=RunSpec(
            deployment_id="d",
            payload=payload,
            created_by=Origin(identity="i", at=at) if at else None,
        ),
        status=RunStatus(**status),
    )


def entry(name: str, ready: float = 0.0, stored: RunInvocation | None = None) -> Entry:
    return Entry(name, "me", 0, "1", ready, stored, progress_of(stored) if stored else (0, False))


def test_runs_come_out_as_they_become_ready_first_in_first_out() -> None:
    waiting = Waiting()
    for each in (entry("late", 9.0), entry("b"), entry("a"), entry("soon", 2.0)):
        waiting.add(each)
    assert [waiting.pop_ready(1.0).name for _ in range(2)] == ["b", "a"]  # type: ignore[union-attr]
    assert waiting.pop_ready(1.0) is None
    assert waiting.next_ready() == 2.0
    waiting.discard("soon")
    assert (waiting.next_ready(), len(waiting), "late" in waiting) == (9.0, 1, True)


def test_echo_of_the_past_changes_nothing() -> None:
    waiting = Waiting()
    waiting.add(entry("r", 9.0, run(phase=Phase.RETRYING, attempts=1)))
    waiting.add(entry("r", 0.0, run(phase=Phase.RUNNING, attempts=1)))
    waiting.add(entry("r", 0.0, run()))
    assert waiting.next_ready() == 9.0
    waiting.add(entry("r", 0.0, run(phase=Phase.RUNNING, attempts=2)))
    assert waiting.next_ready() == 0.0


def test_a_change_that_brings_a_run_no_further_costs_it_no_turn() -> None:
    """As of somebody's label: with the same state it stays where it is among those that wait."""
    waiting = Waiting()
    waiting.add(entry("a", 1.0, run("a")))
    waiting.add(entry("b", 2.0, run("b")))
    waiting.add(replace(entry("a", 3.0, run("a")), version="2"))
    first = waiting.pop_ready(4.0)
    assert first is not None
    assert (first.name, first.version) == ("a", "2")
    waiting.add(replace(entry("b", 3.0, run("b")), lapses=1))
    assert waiting.next_ready() == 3.0, "another term of ours, and the run was taken in anew"


def test_ten_thousand_waiting_runs_keep_no_payloads() -> None:
    waiting = Waiting()
    for number in range(10_000):
        waiting.add(entry(str(number), 0.0, run(payload="x" * (KEPT_PAYLOAD + number % 2))))
    kept = sum(each.run is not None for each in waiting.drain())
    assert kept == KEPT_RUNS
    waiting.add(entry("next", 0.0, run()))
    assert waiting.drain()[0].run is not None


class Looks:
    def __init__(self) -> None:
        self.batches: list[set[str]] = []
        self.go = asyncio.Event()
        self.fault: Unreachable | None = None

    async def versions(self, names: Collection[str]) -> Confirmed:
        self.batches.append(set(names))
        await self.go.wait()
        if self.fault:
            raise self.fault
        return Confirmed(0.0, NOW, {name: ("u", 1) for name in names if name != "off"})


async def test_those_who_wait_share_one_look() -> None:
    looks = Looks()
    confirming = Confirming(looks)
    first = asyncio.create_task(confirming.enabled("a"))
    await asyncio.sleep(0)
    others = [asyncio.create_task(confirming.enabled(name)) for name in ("b", "off", "b")]
    await asyncio.sleep(0)
    looks.go.set()
    assert [await each for each in (first, *others)] == [NOW, NOW, None, NOW]
    assert looks.batches == [{"a"}, {"b", "off"}], "one came too late for a look that had begun"


async def test_many_are_looked_at_some_at_a_time() -> None:
    """A look at more of them reads a list of all, which may take longer than it is good for."""
    looks = Looks()
    confirming = Confirming(looks)
    tasks = [asyncio.create_task(confirming.enabled(f"d{number}")) for number in range(2 * ONE_BY_ONE + 5)]
    again = [asyncio.create_task(confirming.enabled("d40"))]
    await asyncio.sleep(0)
    looks.go.set()
    assert await asyncio.gather(*tasks, *again) == [NOW] * len([*tasks, *again])
    assert set().union(*looks.batches) == {f"d{number}" for number in range(2 * ONE_BY_ONE + 5)}
    assert all(len(batch) <= ONE_BY_ONE for batch in looks.batches)
    assert len(looks.batches) == 4, "the first looks alone, since nobody else was there yet"


async def test_look_that_fails_fails_for_all_at_once() -> None:
    looks = Looks()
    looks.fault = Unreachable("away")
    confirming = Confirming(looks)
    tasks = [asyncio.create_task(confirming.enabled("a")) for _ in range(4)]
    await asyncio.sleep(0)
    looks.go.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in results] == [Unreachable] * 4
    assert len(looks.batches) == 2, "each has looked again"


@pytest.mark.parametrize(
    ("phase", "status", "error"),
    [
        (Phase.QUEUED, "queued", None),
        (Phase.RUNNING, "running", "e"),
        (Phase.RETRYING, "running", "e"),
        (Phase.SUCCEEDED, "completed", None),
        (Phase.FAILED, "failed", "e"),
        (Phase.CANCELLED, "cancelled", "e"),
        ("Paused", "running", "e"),
    ],
)
def test_phases_as_astrabox_reads_them(phase: str, status: str, error: str | None) -> None:
    shown = row(run(phase=phase, last_error="e"))
    assert (shown.status, shown.error) == (status, error)


def test_unreadable_payload_spoils_its_own_row_only() -> None:
    rows = newest_first([run("a", payload="["), run("b", payload='{"p":1}')], 50)
    assert [(each.payload, each.error) for each in rows] == [
        ({"p": 1}, None),
        ({}, "the stored payload is not JSON"),
    ]


def test_newest_first_within_a_second_and_with_clocks_that_differ() -> None:
    times = {
        "a": NOW + timedelta(microseconds=3),
        "b": NOW + timedelta(microseconds=2),
        "c": NOW + timedelta(hours=1),
    }
    rows = newest_first(
        [run(name, at=at) for name, at in times.items()] + [run("old", at=NOW - timedelta(days=1))], 50
    )
    assert [each.run_id for each in rows] == ["c", "a", "b", "old"]
    assert all(NOW <= each.created_at < NOW + timedelta(seconds=1) for each in rows)
    assert [len(newest_first([run(str(n)) for n in range(300)], limit)) for limit in (-1, 0, 7, 1000)] == [
        1,
        1,
        7,
        200,
    ]


def test_pauses_double_and_honour_the_server() -> None:
    pauses = Pauses(Timing(first_pause=1.0, longest_pause=5.0))
    assert [pauses.next() for _ in range(4)] == [1.0, 2.0, 4.0, 5.0]
    pauses.reset()
    assert [pauses.next(3.0), pauses.next(60.0)] == [3.0, 5.0]


def test_what_is_left_of_a_deleted_schedule_outlives_every_older_list() -> None:
    """A list read a minute before the call, written from as late as is allowed, as slowly as can be set."""
    timing = Timing()
    bounds = Settings.model_fields["request_timeout_seconds"].metadata
    (request,) = (bound.le for bound in bounds if isinstance(bound, Le))
    assert isinstance(request, int)
    last_write = 2 * request + timing.settle + 2 * request
    oldest = timing.recently + timing.reconcile + last_write + timing.straggle + timing.clocks
    assert oldest < DELETED_KEPT.total_seconds()


def test_release_before_the_first_call_leaves_a_run_not_started() -> None:
    """G5: the next process asks again whether its schedule is enabled."""
    claimed = with_attempt(RunStatus(), "me", NOW)
    assert with_release(claimed).started
    untouched = with_release(claimed, called=False)
    assert (untouched.started, untouched.phase) == (False, Phase.RETRYING)
    assert with_cancellation(untouched, Cancellation.DISABLED, NOW).phase == Phase.CANCELLED
    again = with_attempt(untouched, "you", NOW)
    failed = with_failure(again, "e", permanent=False, policy=RetryPolicy(), now=NOW)
    assert failed.started
    with pytest.raises(TransitionError):
        with_cancellation(failed, Cancellation.DISABLED, NOW)
