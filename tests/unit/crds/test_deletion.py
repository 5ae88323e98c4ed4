"""What is left of a deleted schedule, and for how long."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from astrabox_scheduler_crds.deletion import DELETED_KEPT, alive, deleted, is_deleted, may_go
from astrabox_scheduler_crds.labels import APPLIED_AT_ANNOTATION, DELETED_LABEL, DEPLOYMENT_LABEL
from astrabox_scheduler_crds.metadata import ObjectMeta, utc_text
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.schedule import DeploymentSchedule, EarlierRule, ScheduleSpec

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=1)
RULE = EarlierRule(cron="1 * * * *", time_zone="UTC", active_since=LONG_AGO, active_until=NOW)


def stored(**fields: Any) -> DeploymentSchedule:
    spec = ScheduleSpec(
        deployment_id="d",
        cron="0 8 * * *",
        time_zone="Europe/Berlin",
        payload='{"prompt":"a secret"}',
        active_since=LONG_AGO,
        earlier_rules=(RULE,),
    )
    metadata = ObjectMeta(
        name="d", uid="u", resource_version="7", labels={"team": "a"}, annotations={"note": "n"}
    )
    return DeploymentSchedule(metadata=metadata, spec=spec.changed(**fields))


def test_nothing_of_it_can_fire_and_its_prompt_is_gone() -> None:
    tombstone = deleted("d", stored(), NOW)
    assert is_deleted(tombstone)
    assert tombstone.spec == ScheduleSpec(
        deployment_id="d",
        cron="0 8 * * *",
        time_zone="Europe/Berlin",
        enabled=False,
        payload="{}",
        active_since=NOW,
    )
    metadata = tombstone.metadata
    assert (metadata.uid, metadata.resource_version) == ("u", "7")
    assert metadata.labels == {"team": "a", DEPLOYMENT_LABEL: "d", DELETED_LABEL: "true"}
    assert metadata.annotations == {"note": "n", APPLIED_AT_ANNOTATION: utc_text(NOW)}
    assert alive(metadata.labels) == {"team": "a", DEPLOYMENT_LABEL: "d"}


def test_the_tombstone_of_one_that_was_never_there_has_its_name() -> None:
    tombstone = deleted("An id with blanks", None, NOW)
    assert is_deleted(tombstone)
    assert tombstone.metadata.name == deployment_key("An id with blanks")
    assert tombstone.metadata.resource_version is None


def test_every_tombstone_is_another_spec() -> None:
    """So that its generation tells the operator that something has changed."""
    off = stored(enabled=False, payload="{}", earlier_rules=None, active_since=NOW)
    assert deleted("d", off, NOW).spec != off.spec


@pytest.mark.parametrize("edit", [{"enabled": True}, {"payload": '{"p":1}'}])
def test_what_somebody_has_made_a_schedule_again_by_hand_is_none(edit: dict[str, Any]) -> None:
    tombstone = deleted("d", stored(), NOW)
    assert not is_deleted(tombstone.changed(spec=tombstone.spec.changed(**edit)))
    assert not is_deleted(stored(enabled=False, payload="{}"))


@pytest.mark.parametrize(
    ("mark", "goes"),
    [
        (utc_text(NOW), False),
        (utc_text(NOW - DELETED_KEPT + timedelta(seconds=1)), False),
        (utc_text(NOW + timedelta(seconds=2)), False),
        (utc_text(NOW - DELETED_KEPT), True),
        (utc_text(NOW + timedelta(days=400)), True),
        ("2026-06-01T12:00:00", True),
        ("not a time", True),
        (None, True),
    ],
)
def test_how_long_it_stays(mark: str | None, goes: bool) -> None:
    tombstone = deleted("d", stored(), NOW)
    marks = {APPLIED_AT_ANNOTATION: mark} if mark is not None else {}
    assert may_go(tombstone.changed(metadata=tombstone.metadata.changed(annotations=marks)), NOW) is goes
