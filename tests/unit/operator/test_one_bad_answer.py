"""One answer that is cut, late or refused harms no other schedule, and its own only while it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from astrabox_scheduler_client.confirm import ScheduleConfirm
from astrabox_scheduler_client.errors import (
    ApiError,
    MalformedAnswer,
    QuotaExceeded,
    ServerError,
    Unreachable,
)
from astrabox_scheduler_client.schedules import Schedules, Version
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_crds.timeline import next_change, replaced
from astrabox_scheduler_operator.index import MAX_KEPT_PAYLOAD
from astrabox_scheduler_operator.repeat import GIVE_UP_AFTER, Tries
from astrabox_scheduler_operator.schedule_status import state_of
from tests.unit.operator.world import Operator, World, at

SMALL = '{"p":"small, and edited since the watch has brought it"}'
LARGE = f'{{"p":"{"x" * MAX_KEPT_PAYLOAD}"}}'
TWENTY = [f"s{number:02}" for number in range(20)]


class Reads(Schedules):
    """Reads of a world's schedules; that of `bad` fails, or takes its time."""

    def __init__(
        self, world: World, bad: str, *, error: ApiError | None = None, seconds: float = 0.0
    ) -> None:
        self.world, self.bad, self.error, self.seconds = world, bad, error, seconds

    async def enabled_versions(self) -> dict[str, Version]:
        return await self.world.schedules.enabled_versions()

    async def version(self, name: str) -> Version | None:
        if name == self.bad:
            for _ in range(100 if self.seconds else 0):
                await asyncio.sleep(0)  # the others' reads are answered meanwhile
            self.world.monotonic += self.seconds
            if self.error is not None:
                raise self.error
        return (await self.enabled_versions()).get(name)

    async def stored_version(self, name: str) -> Version | None:
        return await self.version(name)


@pytest.mark.parametrize("payload", [LARGE, SMALL])
async def test_an_answer_that_is_cut_is_asked_for_again(world: World, payload: str) -> None:
    """FI-14: it says nothing of the object, which is healthy."""
    operator = world.operator()
    world.schedules.put("a", payload=LARGE if payload == LARGE else "{}")
    operator.see()
    world.schedules.put("a", payload=payload)
    if payload == LARGE:
        operator.see()
    real = world.schedules.get

    async def cut(name: str) -> DeploymentSchedule:
        raise MalformedAnswer(f"GET {name}: ClientPayloadError")

    world.schedules.get = cut  # type: ignore[method-assign]
    await operator.at(at("12:01"))
    world.schedules.get = real  # type: ignore[method-assign]
    await operator.at(at("12:01:10"))
    await operator.write_status()
    assert world.due_names("a") == ["12:01"]
    status = world.schedules.stored["a"].status
    assert [each.status for each in status.conditions if each.type == "Ready"] == ["True"]


@pytest.mark.parametrize(
    ("error", "seconds"), [(ServerError("GET s07: HTTP 500", status=500), 0.0), (None, 2.1)]
)
async def test_one_read_that_fails_or_is_slow_holds_up_no_other(
    world: World, error: ApiError | None, seconds: float
) -> None:
    """FI-14: twenty are due together, and one of them cannot be confirmed."""
    operator = world.operator()
    for name in TWENTY:
        world.schedules.put(name)
    operator.see()
    reads = Reads(world, "s07", error=error, seconds=seconds)
    operator.firing._burst._choice._confirm = ScheduleConfirm(reads, world.clock)
    world.now = at("12:01")
    await operator.firing.step(world.now)
    assert sorted(world.runs.stored) == [f"{name}-20260601t1201z" for name in TWENTY if name != "s07"]
    reads.error, reads.seconds = None, 0.0
    await operator.at(at("12:01:02"))
    assert world.due_names("s07") == ["12:01"]


async def test_a_confirmation_that_fails_is_counted(world: World) -> None:
    """OB-03: nothing else of it shows before due times are lost."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    operator.confirm.fail = ServerError("HTTP 500", status=500)
    await operator.at(at("12:01"))
    assert operator.sample("create_errors_total", reason="ServerError") == 1
    for number in range(30):
        world.schedules.put(f"s{number}")
    operator.see()
    await operator.at(at("12:02"))
    assert operator.sample("create_errors_total", reason="ServerError") == 2


async def test_one_name_that_cannot_be_read_is_told_apart(world: World) -> None:
    for name in TWENTY:
        world.schedules.put(name)
    confirm = ScheduleConfirm(Reads(world, "s07", error=ServerError("no")), world.clock)
    confirmed = await confirm.versions(TWENTY)
    assert set(confirmed.versions) == set(TWENTY) - {"s07"}
    assert set(confirmed.failed) == {"s07"}
    with pytest.raises(ServerError):
        await confirm.versions(["s07"])


async def test_a_due_time_survives_an_edit_during_its_own_read(world: World) -> None:
    """FI-04: the answer of a slow read comes after the watch has brought the edit."""
    operator = world.operator()
    world.schedules.put("a", active_since=at("12:00"), payload=LARGE)
    operator.see()
    await operator.write_status()
    operator.see()
    real = world.schedules.get

    async def slow(name: str) -> DeploymentSchedule:
        answer = await real(name)
        world.now += timedelta(seconds=0.5)
        edit(world, cron="*/1 * * * *")
        operator.see()
        world.schedules.get = real  # type: ignore[method-assign]
        return answer

    world.schedules.get = slow  # type: ignore[method-assign]
    await operator.at(at("12:01"))
    for second in ("03", "10", "30"):
        await operator.at(at(f"12:01:{second}"))
        await operator.write_status()
        operator.see()
    await operator.minutes("12:02", "12:03")
    assert world.due_names("a") == ["12:01", "12:02", "12:03"]


async def test_what_another_operator_has_fired_is_no_trouble_any_more(world: World) -> None:
    """OB-03: the first met a full quota and lost its Lease; the second has fired."""
    first = await with_a_full_quota(world)
    assert ready(world, first) == ("False", "QuotaExceeded")
    first.attendance.is_held = False
    world.operators = {"op-2"}
    second = world.operator("op-2")
    second.see()
    world.runs.fail = lambda _: None
    await second.at(at("12:01:40"))
    await second.write_status()
    first.see()
    first.attendance.is_held = True
    world.operators = {"op-1"}
    first.status.touch("a")
    await first.write_status()
    assert ready(world, first) == ("True", "Scheduled")


async def test_a_due_time_that_could_not_be_created_is_told_when_its_window_closes(world: World) -> None:
    """OB-03: once a day; a person reads at six what became of it, and no alert goes on for a day."""
    operator = world.operator()
    world.schedules.put("a", cron="1 12 * * *")
    operator.see()
    world.runs.fail = lambda _: QuotaExceeded("exceeded quota: runs", status=403)
    now = at("12:01")
    states = set()
    while now < at("12:12"):
        await operator.at(now)
        states.add(state_of(operator.entry("a")))
        now += timedelta(seconds=20)
    assert states == {"failing", "active"}
    await operator.at(at("18:00"))
    await operator.write_status()
    await operator.reporter.flush()
    assert state_of(operator.entry("a")) == "active"
    status = world.schedules.stored["a"].status
    (message,) = (each.message for each in status.conditions if each.type == "Ready")
    assert message == "the run of 2026-06-01T12:01:00Z could not be created: exceeded quota: runs"
    assert status.skipped is not None
    assert (status.skipped.count, status.skipped.reason) == (1, "OutsideCatchUpWindow")
    assert [reason for _, reason, _ in operator.events.written] == ["DueTimesSkipped", "QuotaExceeded"]


async def test_failures_one_after_the_other_are_one_event(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.runs.fail = lambda run: QuotaExceeded(f"{run.metadata.name}: exceeded quota", status=403)
    for minute in range(1, 6):
        await operator.at(at(f"12:0{minute}"))
        await operator.write_status()
    await operator.reporter.flush()
    assert [reason for _, reason, _ in operator.events.written] == ["QuotaExceeded"]


async def with_a_full_quota(world: World) -> Operator:
    """An operator that could not create the run of 12:01, and has told so."""
    operator = world.operator("op-1")
    world.schedules.put("a", cron="1 12 * * *")
    operator.see()
    world.runs.fail = lambda _: QuotaExceeded("exceeded quota: runs", status=403)
    await operator.at(at("12:01"))
    await operator.write_status()
    return operator


def edit(world: World, cron: str) -> None:
    """As AstraBox writes it: with the rule that held before."""
    stored = world.schedules.stored["a"]
    since = next_change(stored, world.now)
    earlier = replaced(stored, since, world.now, enabled=True)
    world.schedules.put(
        "a", active_since=since, earlier_rules=earlier, payload=stored.spec.payload, cron=cron
    )


def ready(world: World, operator: Operator) -> tuple[str, str]:
    operator.see()
    (condition,) = (each for each in world.schedules.stored["a"].status.conditions if each.type == "Ready")
    return condition.status, condition.reason


async def test_confirmations_that_failed_make_no_create_wait(world: World) -> None:
    """FI-14: six seconds of them, and then one create that fails: tried again after five seconds as ever."""
    operator = world.operator()
    world.schedules.put("a", cron="1 12 * * *")
    operator.see()
    operator.confirm.fail = ServerError("HTTP 500", status=500)
    for second in range(6):
        await operator.at(at(f"12:01:0{second}"))
    operator.confirm.fail = None
    world.runs.fail = lambda _: ServerError("HTTP 500", status=500)
    await operator.at(at("12:01:07"))
    world.runs.fail = lambda _: None
    await operator.at(at("12:01:12"))
    assert world.due_names("a") == ["12:01"]


async def test_a_status_whose_answer_was_lost_is_told_all_the_same(world: World) -> None:
    """OB-03: the write was carried out; nothing is left to write, and the Event is still to be said."""
    operator = world.operator()
    world.schedules.put("a", cron="1 12 * * *")
    operator.see()
    world.runs.fail = lambda _: QuotaExceeded("exceeded quota: runs", status=403)
    await operator.at(at("12:01"))
    real = world.schedules.patch_status

    async def cut(name: str, status: Mapping[str, Any], version: str | None = None) -> ObjectMeta:
        await real(name, status, version)
        raise Unreachable("cut", reason="Cut", ambiguous=True)

    world.schedules.patch_status = cut  # type: ignore[method-assign,assignment]
    await operator.write_status()
    world.schedules.patch_status = real  # type: ignore[method-assign]
    operator.status.touch("a")
    await operator.write_status()
    operator.status.touch("a")
    await operator.write_status()
    await operator.reporter.flush()
    assert [reason for _, reason, _ in operator.events.written] == ["QuotaExceeded"]


async def test_an_heir_tells_of_the_same_trouble(world: World) -> None:
    """OB-03: the quota is as full as before, whoever writes the status."""
    await with_a_full_quota(world)
    world.operators = {"op-2"}
    heir = world.operator("op-2")
    heir.see()
    heir.status.touch("a")
    await heir.write_status()
    assert ready(world, heir) == ("False", "QuotaExceeded")
    world.runs.fail = lambda _: None
    await heir.at(at("12:01:30"))
    await heir.write_status()
    assert ready(world, heir) == ("True", "Scheduled")


def test_a_turn_is_given_up_when_nothing_gets_through() -> None:
    tries = Tries()
    for _ in range(GIVE_UP_AFTER):
        assert not tries.given_up
        tries.failed(ServerError("no"))
    assert tries.given_up
    with pytest.raises(ServerError):
        tries.raise_if_given_up()
    tries.succeeded()
    tries.raise_if_given_up()
    assert not tries.given_up
