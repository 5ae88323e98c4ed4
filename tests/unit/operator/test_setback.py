"""Statuses that cannot be written: told once, tried on in growing pauses, and counted."""

import logging
from collections.abc import Mapping
from typing import Any

import pytest

from astrabox_scheduler_client.errors import (
    AccessDenied,
    ApiError,
    Conflict,
    NotServed,
    QuotaExceeded,
    Unreachable,
)
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_operator.preflight import remedy
from astrabox_scheduler_operator.setback import LONGEST_PAUSE_SECONDS, Setback
from tests.unit.operator.world import World

DENIED = AccessDenied('HTTP 403 Forbidden: User "o" cannot patch', status=403, reason="Forbidden")
AWAY = Unreachable("away")
NAMES = tuple(f"s{number}" for number in range(8))


def test_pauses_grow_while_nothing_gets_through() -> None:
    setback, now, pauses = Setback(), 0.0, []
    for _ in range(6):
        for name in NAMES:
            setback.failed(name, AWAY, now)
        begun = now
        while setback.pauses(now):
            now += 1.0
        pauses.append(now - begun)
    assert pauses == [5.0, 10.0, 20.0, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS]
    setback.succeeded("s0")
    assert not setback.pauses(begun)
    for name in NAMES:
        setback.failed(name, AWAY, now)
    assert not setback.pauses(now + 5.0), "they begin again"


def test_few_that_fail_hold_up_no_other() -> None:
    setback = Setback()
    for second in range(100):
        setback.failed("bad", AWAY, float(second))
        setback.failed("worse", AWAY, float(second))
        assert not setback.pauses(float(second))
    setback = Setback()
    for second in range(100):
        setback.failed(f"bad-{second}", AWAY, float(second))
        assert not setback.pauses(float(second))
        setback.succeeded("good")


def test_the_first_and_the_end_are_told() -> None:
    setback = Setback()
    assert [setback.failed(name, AWAY, 0.0) for name in NAMES] == [True] + [False] * 7
    for name in NAMES[:-2]:
        assert not setback.succeeded(name)
    setback.dropped(NAMES[-2])
    assert setback.succeeded(NAMES[-1])
    assert not setback.succeeded(NAMES[-1])
    assert setback.failed(NAMES[-1], AWAY, 0.0)


def test_another_kind_of_error_is_told_as_well() -> None:
    """One that cannot be reached must not hide that later a right is missing for all."""
    setback = Setback()
    assert setback.failed("bad", AWAY, 0.0)
    setback.succeeded("good")
    assert setback.failed("good", DENIED, 1.0)
    assert not setback.failed("another", DENIED, 1.0)


async def test_all_that_cannot_be_written_get_one_line(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A right that was taken away: one line for all, few tries, a count by reason; one more at the end."""
    caplog.set_level(logging.INFO)
    operator = world.operator()
    for name in NAMES:
        world.schedules.put(name)
    operator.see()
    await operator.write_status()
    assert len(world.schedules.patches) == len(NAMES)
    for name in NAMES:
        world.schedules.put(name, cron="0 3 * * *")
    operator.see()
    real, tries = world.schedules.patch_status, []

    async def denied(name: str, status: Mapping[str, Any], version: str | None = None) -> ObjectMeta:
        tries.append(name)
        raise DENIED

    monkeypatch.setattr(world.schedules, "patch_status", denied)
    for _ in range(60):  # five minutes
        world.monotonic += 5.0
        while (ready := operator.status._first_ready(world.monotonic)) is not None:
            del operator.status._waiting[ready]
            assert not await operator.status.write(operator.index, ready)
    assert len(NAMES) < len(tries) < 40, "without pauses 8 each 5 s"
    assert operator.sample("status_errors_total", reason="Forbidden") == len(tries)
    monkeypatch.setattr(world.schedules, "patch_status", real)
    await operator.write_status()
    lines = [record.getMessage() for record in caplog.records if "statuses" in record.getMessage()]
    assert len(lines) == 2
    assert lines[0].startswith("statuses of schedules cannot be written, trying on: HTTP 403 Forbidden: User")
    assert "rbac.create=true" in lines[0]
    assert lines[1] == "statuses of schedules can be written again"


async def test_one_that_fails_again_and_again_comes_behind_the_others(world: World) -> None:
    operator = world.operator()
    world.schedules.put("bad")
    operator.see()
    world.schedules.fail = Unreachable("cut", reason="Cut")
    await operator.write_status()
    world.schedules.fail = None
    world.monotonic += 60.0
    operator.status.touch("good")
    assert operator.status._first_ready(world.monotonic) == "good"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DENIED, ": upgrade the chart to this release with rbac.create=true; or bind the service account"),
        (NotServed("404"), ": install the chart of this release, or upgrade to it, with crds.install=true"),
        (QuotaExceeded("exceeded quota"), ""),
        (Unreachable("cut"), ""),
    ],
)
def test_what_is_missing_is_told_with_what_gives_it(error: ApiError, told: str) -> None:
    assert remedy(error).startswith(told)
    assert bool(remedy(error)) == bool(told)


async def test_a_conflict_with_no_other_writer_is_a_failure(world: World) -> None:
    """A webhook may answer 409 as well: it is tried on with pauses, not at once and for ever."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()

    async def refused(*_: Any) -> ObjectMeta:
        raise Conflict("409", status=409)

    world.schedules.patch_status = refused  # type: ignore[method-assign,assignment]
    assert not await operator.status.write(operator.index, "a")
    assert "a" in operator.status._setback


async def test_what_another_operator_writes_by_now_is_no_failure_of_ours(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.schedules.fail = DENIED
    await operator.status.write(operator.index, "a")
    assert "a" in operator.status._setback
    operator.attendance.is_held = False
    await operator.status.write(operator.index, "a")
    assert "a" not in operator.status._setback
