"""What people read when something did not hold."""

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.history.timeline import timeline
from tests.unit.history.story import a_good_day


def test_a_run_is_told_in_order_from_its_due_time() -> None:
    told = timeline(a_good_day().history(), "every-300").splitlines()
    assert told[0] == "run every-300, seconds since its due time 2027-01-15T08:05Z"
    times = [float(line.split()[0]) for line in told[1:]]
    assert times == sorted(times)
    events = [line.split(maxsplit=1)[1] for line in told[1:]]
    wanted = [
        "op-1            create runinvocations: 201",
        "a               patch status: 200 in 0.02 s  phase=Running attempts=1",
        "a               start_session begins",
        "host a (101) ends with code -9",
        "b               patch runinvocations: 200 in 0.02 s  assignee=b",
        "b               start_session answered sess-every-300 after 0.20 s",
        "b               admit_turn begins with sess-every-300",
        "b               patch status: 200 in 0.02 s  phase=Succeeded attempts=2 sessionId=sess-every-300 ",
    ]
    found = [next(number for number, event in enumerate(events) if event.startswith(each)) for each in wanted]
    assert found == sorted(found)


def test_nothing_of_a_payload_is_told() -> None:
    history = a_good_day().history()
    for told in (timeline(history, "every-300"), timeline(history, deployment_id="half")):
        assert "hello" not in told
        assert "payload" not in told


def test_a_schedule_is_told_by_its_commands_and_writes() -> None:
    told = timeline(a_good_day().history(), deployment_id="half")
    assert "b               apply is asked cron=*/2 * * * * timezone=UTC enabled=True" in told
    assert "delete deploymentschedules: 200" in told


def test_an_unknown_run() -> None:
    assert timeline(a_good_day().history(), "nobody") == "nothing is known of it"


def test_what_did_not_hold_is_told_with_its_story() -> None:
    story = a_good_day()
    story.call("every-240", ("b", 102), "admit_turn", 250, 251)
    with pytest.raises(AssertionError) as caught:
        assert_holds(story.history())
    told = str(caught.value)
    assert "G3 every-240: admit_turn began in b at +250.0 s, after it was Succeeded" in told
    assert "run every-240, seconds since its due time" in told
    assert "+10.00  b               admit_turn begins" in told
    assert "due times" in told
