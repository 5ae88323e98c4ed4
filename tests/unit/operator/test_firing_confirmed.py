"""Every create rests on a fresh read: edits, disables and deletes that the watch has not brought count."""

from collections.abc import Collection
from datetime import timedelta

import pytest

from astrabox_scheduler_client.confirm import Confirmed
from astrabox_scheduler_client.errors import Unreachable
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import RunInvocation
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_operator.index import MAX_KEPT_PAYLOAD
from tests.unit.operator.world import World, at

LARGE = f'{{"p":"{"x" * MAX_KEPT_PAYLOAD}"}}'


async def test_an_edit_makes_nothing_in_the_past_due(world: World) -> None:
    """FI-03: at 13:50 `0 14` becomes `40 13`: nothing today; a later due time of the new rule fires."""
    operator = world.operator()
    world.schedules.put("a", cron="0 14 * * *")
    operator.see()
    world.now = at("13:50")
    world.schedules.put("a", cron="40 13 * * *")
    operator.see()
    await operator.minutes("13:51", "14:05")
    assert world.due_names("a") == []
    world.schedules.put("a", cron="10 14 * * *")
    operator.see()
    await operator.minutes("14:10", "14:11")
    assert world.due_names("a") == ["14:10"]


async def test_a_minute_just_fired_does_not_fire_again_by_an_edit(world: World) -> None:
    """FI-03: last due 12:03; at 12:04:08 the rule becomes `4 12`."""
    operator = world.operator()
    world.schedules.put("a", cron="3 12 * * *")
    operator.see()
    await operator.at(at("12:03:01"))
    world.now = at("12:04:08")
    world.schedules.put("a", cron="4 12 * * *")
    operator.see()
    await operator.at(at("12:04:09"))
    assert world.due_names("a") == ["12:03"]


async def test_an_edit_that_the_watch_has_not_brought_counts(world: World) -> None:
    """FI-04: at wake-up the schedule is read again; the old rule does not fire."""
    operator = world.operator()
    world.schedules.put("a", cron="5 12 * * *")
    operator.see()
    world.now = at("12:02")
    world.schedules.put("a", cron="30 12 * * *")
    await operator.at(at("12:05:01"))
    assert world.due_names("a") == []
    assert world.schedules.gets == ["a"]
    await operator.at(at("12:30:01"))
    assert world.due_names("a") == ["12:30"]


async def test_an_edit_while_the_confirmation_is_read_counts(world: World) -> None:
    """FI-04: the watch brings the edit between the read and the create."""
    operator = world.operator()
    world.schedules.put("a", cron="5 12 * * *")
    operator.see()

    def edited() -> None:
        world.schedules.put("a", cron="30 12 * * *")
        operator.see()

    operator.confirm.meanwhile = edited
    await operator.at(at("12:05:01"))
    assert world.runs.creates == []


async def test_an_edit_during_the_create_forgets_no_run(world: World) -> None:
    """The run was decided on before the edit; its due time stays the schedule's last one."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    create = world.runs.create

    async def create_and_edit(run: RunInvocation) -> ObjectMeta:
        created = await create(run)
        world.schedules.put("a", cron="*/30 * * * *", active_since=at("12:01:00"))
        operator.see()
        return created

    world.runs.create = create_and_edit  # type: ignore[method-assign]
    await operator.at(at("12:01"))
    entry = operator.entry("a")
    assert (entry.last_due, entry.last_run) == (at("12:01"), "a-20260601t1201z")
    assert entry.next_due == at("12:30")


async def test_a_disable_that_the_watch_has_not_brought_counts(world: World) -> None:
    """PA-04: the pause lands before the create, the watch is delayed: nothing is created."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.schedules.put("a", enabled=False)
    await operator.at(at("12:01"))
    assert world.runs.creates == []
    entry = operator.entry("a")
    assert not entry.enabled


async def test_a_delete_that_the_watch_has_not_brought_counts(world: World) -> None:
    """PA-04: the same for a deleted schedule, and for one that was made anew."""
    operator = world.operator()
    world.schedules.put("a")
    world.schedules.put("b")
    operator.see()
    del world.schedules.stored["a"], world.schedules.stored["b"]
    world.now = at("12:00:59")
    world.schedules.put("b", created=at("12:00:59"), payload='{"p":"new"}')
    await operator.at(at("12:01"))
    assert operator.index.get("a") is None
    assert world.due_names("a") == []
    assert world.runs.stored["b-20260601t1201z"].spec.payload == '{"p":"new"}'


async def test_a_confirmation_that_grew_old_creates_nothing(world: World) -> None:
    """PA-04: the age holds at each create; a burst is cut and confirmed again."""
    operator = world.operator()
    for number in range(100):
        world.schedules.put(f"s{number}")
    operator.see()
    ages: list[float] = []
    operator.confirm.takes = 0.5

    def slow(_: RunInvocation) -> None:
        ages.append(world.monotonic - begun[-1])
        world.monotonic += 0.1

    begun: list[float] = []
    operator.confirm.meanwhile = lambda: begun.append(world.monotonic)
    world.runs.fail = slow
    result = await operator.at(at("12:01"))
    assert result.fired == 100
    assert max(ages) <= 2.0 + 0.8, "eight creates are in flight at once and each takes 0.1 s here"
    assert operator.confirm.asked == [100, 77, 54, 31] + [1] * 8, "a few are read one by one"


async def test_a_list_that_takes_too_long_gives_way_to_a_read_for_each(world: World) -> None:
    """PA-04: no create rests on a list that came too late, and the burst goes on all the same."""
    operator = world.operator()
    for number in range(500):
        world.schedules.put(f"s{number}")
    operator.see()
    operator.confirm.takes = 2.5
    world.now = at("12:01")
    await operator.firing.step(at("12:01"))
    assert world.runs.creates == []
    operator.confirm.takes = 0.0
    await operator.firing.drain(at("12:01"))
    assert len(world.runs.stored) == 500
    assert operator.confirm.asked == [500] + [1] * 500


async def test_a_step_ends_after_two_seconds_however_much_is_due(world: World) -> None:
    """FI-16: the next step reads the clock anew."""
    operator = world.operator()
    for number in range(200):
        world.schedules.put(f"s{number}")
    operator.see()
    operator.firing._burst._choice._took = 100.0
    operator.confirm.takes = 0.1
    world.now, begun = at("12:01"), world.monotonic
    result = await operator.firing.step(at("12:01"))
    assert result.more
    assert world.monotonic - begun < 2.0 + 8 * 0.1


async def test_a_read_for_each_sees_every_change_and_outlives_an_error(world: World) -> None:
    """PA-04, FI-14: the same guarantees without a shared list."""
    operator = world.operator()
    for number in range(30):
        world.schedules.put(f"s{number}")
    operator.see()
    operator.firing._burst._choice._took = 100.0
    world.schedules.put("s1", enabled=False)
    world.schedules.put("s2", payload='{"p":"new"}')
    real, failing = operator.confirm.versions, ["s3"]

    async def versions(names: Collection[str]) -> Confirmed:
        if set(names) & set(failing):
            raise Unreachable("cut", reason="Cut")
        return await real(names)

    operator.confirm.versions = versions  # type: ignore[method-assign]
    await operator.at(at("12:01"))
    assert len(world.runs.stored) == 28
    assert world.runs.stored["s2-20260601t1201z"].spec.payload == '{"p":"new"}'
    failing.clear()
    await operator.at(at("12:01:01"))
    assert len(world.runs.stored) == 29
    assert world.due_names("s1") == []


async def test_flips_end_in_the_last_state(world: World) -> None:
    """WA-05: flipped 50 times, last value enabled or disabled: the end state wins."""
    operator = world.operator()
    world.schedules.put("on")
    world.schedules.put("off")
    for number in range(50):
        world.schedules.put("on", enabled=number % 2 == 1)
        world.schedules.put("off", enabled=number % 2 == 0)
        if number % 7 == 0:
            operator.see()
    operator.see()
    await operator.at(at("12:01"))
    assert world.due_names("on") == ["12:01"]
    assert world.due_names("off") == []


async def test_a_large_payload_is_read_when_it_is_needed(world: World) -> None:
    """AL-04: 300 KiB are not kept in memory, and reach the run verbatim."""
    operator = world.operator()
    text = '{"p":"' + "x" * 300_000 + '"}'
    assert len(text) > MAX_KEPT_PAYLOAD
    world.schedules.put("a", payload=text)
    operator.see()
    entry = operator.entry("a")
    assert entry.payload is None
    await operator.at(at("12:01"))
    assert world.runs.stored["a-20260601t1201z"].spec.payload == text
    assert world.schedules.gets == ["a"]


@pytest.mark.parametrize("disabled", [False, True])
async def test_a_large_payload_that_takes_long_is_confirmed_again(world: World, disabled: bool) -> None:
    """PA-04: no create rests on the confirmation from before, and a slow link does not hold it up."""
    operator = world.operator()
    world.schedules.put("a", payload=LARGE)
    operator.see()
    real = world.schedules.get

    async def slow(name: str) -> DeploymentSchedule:
        answer = await real(name)
        world.monotonic += 3
        if disabled:
            world.schedules.put("a", enabled=False)
        return answer

    world.schedules.get = slow  # type: ignore[method-assign]
    world.now = at("12:01")
    await operator.firing.step(at("12:01"))
    assert operator.confirm.asked == [1, 1]
    assert world.due_names("a") == ([] if disabled else ["12:01"])


async def test_a_lease_that_is_lost_while_a_large_payload_is_read_counts(world: World) -> None:
    """OO-05: the last look at the Lease is right before the create."""
    operator = world.operator()
    world.schedules.put("a", payload=LARGE)
    operator.see()
    real = world.schedules.get

    async def slow(name: str) -> DeploymentSchedule:
        operator.attendance.is_held = False
        return await real(name)

    world.schedules.get = slow  # type: ignore[method-assign]
    world.now = at("12:01")
    await operator.firing.step(at("12:01"))
    assert world.runs.creates == []
    world.schedules.get = real  # type: ignore[method-assign]
    operator.attendance.is_held = True
    await operator.at(at("12:01:01"))
    assert world.due_names("a") == ["12:01"]


async def test_a_clock_within_a_second_makes_no_read_younger_than_it_is(world: World) -> None:
    """G5: the operator has had one answer, and its clock is 0.9 s ahead of the API server's."""
    operator = world.operator()
    world.schedules.put("a", cron="1 12 * * *")
    operator.see()
    true = at("12:01:03.050")
    world.monotonic += (true - world.now).total_seconds()
    world.now = true + timedelta(seconds=0.9)
    world.clock.observe(at("12:01:03"), world.monotonic - 0.01, world.monotonic)
    assert world.clock.now() > true
    await operator.firing.step(world.clock.now())
    (run,) = world.runs.stored.values()
    assert run.spec.created_by is not None
    assert run.spec.created_by.confirmed_at is not None
    assert run.spec.created_by.confirmed_at <= true
