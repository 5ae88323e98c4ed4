"""Creates that fail: tried again in order, not hot, and told where it can be seen."""

from datetime import timedelta

import pytest

from astrabox_scheduler_client.errors import Forbidden, NotFound, QuotaExceeded, Unreachable
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.run import RunInvocation, RunSpec
from tests.unit.operator.world import World, at


async def test_a_name_that_is_there_does_not_stop_the_next_due_time(world: World) -> None:
    """OO-03: the run of D was created by somebody else; D is done, D+1 fires on time."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    spec = RunSpec(deployment_id="a", trigger="schedule", due_time=at("12:01"), payload="{}")
    metadata = ObjectMeta(name="a-20260601t1201z", labels={labels.DEPLOYMENT_LABEL: "a"})
    world.runs.put(RunInvocation(metadata=metadata, spec=spec))
    await operator.at(at("12:01:01"))
    await operator.at(at("12:02:00"))
    assert world.due_names("a") == ["12:01", "12:02"]
    assert world.runs.stored["a-20260601t1201z"].spec.payload == "{}", "the run that is there is not touched"


async def test_a_name_of_another_deployment_is_no_success(world: World) -> None:
    """OO-03: AlreadyExists counts only for the same Deployment; else it is skipped, with a condition."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    spec = RunSpec(deployment_id="somebody else", trigger="schedule", due_time=at("12:01"), payload="{}")
    world.runs.put(RunInvocation(metadata=ObjectMeta(name="a-20260601t1201z"), spec=spec))
    await operator.at(at("12:01:01"))
    await operator.write_status()
    status = world.schedules.stored["a"].status
    assert status.skipped is not None
    assert (status.skipped.count, status.skipped.reason) == (1, "NameTaken")
    assert status.last_run is None
    assert [each.reason for each in status.conditions if each.type == "Ready"] == ["NameTaken"]


async def test_order_within_a_schedule_is_kept_by_retries(world: World) -> None:
    """A create that fails holds up its own later due times, and no other schedule."""
    operator = world.operator()
    world.schedules.put("a")
    world.schedules.put("b")
    operator.see()
    broken = {"a-20260601t1201z"}
    world.runs.fail = lambda run: (
        Unreachable("no answer", reason="Cut") if run.metadata.name in broken else None
    )
    await operator.minutes("12:01", "12:03")
    assert world.due_names("b") == ["12:01", "12:02", "12:03"]
    assert "a-20260601t1202z" not in world.runs.creates
    broken.clear()
    await operator.at(at("12:03:45"))
    assert [name for name in world.runs.creates if name.startswith("a-")][-3:] == [
        "a-20260601t1201z",
        "a-20260601t1202z",
        "a-20260601t1203z",
    ]


async def test_a_failing_create_is_not_repeated_hot(world: World) -> None:
    """AL-05: the quota is used up: few tries, one condition, then skipped; others unaffected."""
    operator = world.operator()
    world.schedules.put("a", cron="1 12 * * *")
    world.schedules.put("b")
    operator.see()
    quota = QuotaExceeded("exceeded quota: count/runinvocations", status=403, reason="Forbidden")
    world.runs.fail = lambda run: quota if run.metadata.name.startswith("a-") else None
    now = at("12:01")
    while now < at("12:12"):
        await operator.at(now)
        await operator.write_status()
        now += timedelta(seconds=1)
    tries = [name for name in world.runs.creates if name.startswith("a-")]
    assert 15 <= len(tries) <= 25
    status = world.schedules.stored["a"].status
    ready = next(each for each in status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "QuotaExceeded")
    assert status.skipped is not None
    assert (status.skipped.count, status.skipped.reason) == (1, "OutsideCatchUpWindow")
    assert len([name for name, _ in world.schedules.patches if name == "a"]) <= 4
    assert len(world.due_names("b")) == 11
    assert operator.sample("create_errors_total", reason="Forbidden") == len(tries)
    for second in (30, 40):
        await operator.at(at(f"12:12:{second}"))
    await operator.reporter.flush()
    assert [reason for _, reason, _ in operator.events.written] == ["QuotaExceeded", "DueTimesSkipped"]


async def test_a_server_that_asks_to_wait_is_obeyed(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a", cron="1 12 * * *")
    operator.see()
    world.runs.fail = lambda _: Unreachable("busy", reason="TooMany", retry_after=50)
    await operator.at(at("12:01"))
    await operator.at(at("12:01:45"))
    assert len(world.runs.creates) == 1
    await operator.at(at("12:01:50"))
    assert len(world.runs.creates) == 2


async def test_creates_that_are_forbidden_are_told(world: World) -> None:
    """OB-03: Ready=False with the API's answer, an Event; it is True again after the next success."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    world.runs.fail = lambda _: Forbidden(
        "User x cannot create runinvocations", status=403, reason="Forbidden"
    )
    await operator.at(at("12:01"))
    await operator.write_status()
    status = world.schedules.stored["a"].status
    ready = next(each for each in status.conditions if each.type == "Ready")
    assert (ready.status, ready.reason) == ("False", "CreateForbidden")
    assert "cannot create runinvocations" in ready.message
    assert status.last_due_time is None
    world.runs.fail = lambda _: None
    await operator.at(at("12:01:10"))
    await operator.write_status()
    status = world.schedules.stored["a"].status
    assert [each.status for each in status.conditions if each.type == "Ready"] == ["True"]
    assert status.last_due_time == at("12:01")
    await operator.reporter.flush()
    ((name, reason, note),) = operator.events.written
    assert (name, reason) == ("a", "CreateForbidden")
    assert "cannot create runinvocations" in note


async def test_a_namespace_that_ends_is_told_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """AL-06: the namespace is being deleted: one line, no condition, no hot retry."""
    operator = world.operator()
    for number in range(5):
        world.schedules.put(f"s{number}")
    operator.see()
    ended = Forbidden("ended", status=403, reason="Forbidden", fields=("metadata.namespace",))
    world.runs.fail = lambda _: ended
    await operator.minutes("12:01", "12:03")
    assert [r.getMessage() for r in caplog.records if "namespace" in r.getMessage()] == [
        "the namespace is being deleted, nothing can fire: ended"
    ]
    assert all(entry.trouble is None for entry in operator.index)


async def test_an_api_server_that_is_away_holds_everything_until_it_is_back(world: World) -> None:
    """FI-14: the confirmation does not get through over a due time; later both are fired."""
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    operator.confirm.fail = Unreachable("refused", reason="NotSent")
    await operator.at(at("12:01"))
    await operator.at(at("12:01:10"))
    assert world.runs.creates == []
    operator.confirm.fail = None
    await operator.at(at("12:01:15"))
    await operator.at(at("12:02"))
    assert world.due_names("a") == ["12:01", "12:02"]


async def test_a_schedule_that_cannot_be_read_holds_up_no_other(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    world.schedules.put("b")
    operator.see()
    world.schedules.put("a", payload='{"p":"new"}')

    async def fails(name: str) -> None:
        world.schedules.gets.append(name)
        raise Unreachable("cut", reason="Cut")

    world.schedules.get = fails  # type: ignore[method-assign,assignment]
    await operator.at(at("12:01"))
    assert world.due_names("b") == ["12:01"]
    assert world.due_names("a") == []
    await operator.at(at("12:01:04"))
    assert world.schedules.gets == ["a"], "not again before its time"


async def test_a_run_that_went_away_between_create_and_read_is_tried_again(world: World) -> None:
    operator = world.operator()
    world.schedules.put("a")
    operator.see()
    spec = RunSpec(deployment_id="a", trigger="schedule", due_time=at("12:01"), payload="{}")
    world.runs.put(RunInvocation(metadata=ObjectMeta(name="a-20260601t1201z"), spec=spec))
    real = world.runs.get

    async def gone(name: str) -> RunInvocation:
        world.runs.stored.clear()
        raise NotFound("gone", status=404, reason="NotFound")

    world.runs.get = gone  # type: ignore[method-assign]
    await operator.at(at("12:01"))
    world.runs.get = real  # type: ignore[method-assign]
    await operator.at(at("12:01:06"))
    assert world.due_names("a") == ["12:01"]
