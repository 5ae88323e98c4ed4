"""What a deletion leaves for a while is no schedule: nothing is due by it, and it is gone at the end."""

from __future__ import annotations

from typing import Any

from tests.faults.history.facts import Command
from tests.unit.history.story import Story, a_good_day, by_name, found, permitted, t

LABEL = "scheduler.astrabox.io/deleted"


def buried(**changes: Any) -> Story:
    """The good day, whose schedule `half` is deleted by a write that leaves a tombstone."""
    story = a_good_day()
    story.drop("writes", by_name("half", "delete"))
    spec = {"enabled": False, "payload": "{}", "activeSince": "2027-01-15T08:13:20.030000Z"} | changes
    patch(story, 800.03, "a", "true", spec)
    return story


def patch(story: Story, at: float, by: str, label: str | None, spec: dict[str, Any]) -> None:
    sent = {"metadata": {"labels": {LABEL: label}}, "spec": spec}
    story.write(at, by, "patch", "half", resource="deploymentschedules", sent=sent)


def test_a_tombstone_is_no_schedule() -> None:
    permitted(buried())


def test_one_with_a_payload_or_enabled_is_a_schedule() -> None:
    for changes in ({"enabled": True}, {"payload": '{"half":2}'}):
        told = {each.what for each in found(buried(**changes)) if each.deployment_id == "half"}
        assert "it was deleted and is there at the end" in told


def test_a_schedule_comes_back_from_its_tombstone() -> None:
    story = buried()
    rule = {"cron": "0 0 1 1 *", "timezone": "UTC", "enabled": True, "payload": {"half": 3}}
    story.commands.append(Command("b", "apply", t(850), t(850.1), deployment_id="half", schedule=rule))
    patch(story, 850.03, "b", None, {"cron": "0 0 1 1 *", "enabled": True, "payload": '{"half":3}'})
    permitted(story)
