"""What is stored of schedules, read and written past the provider."""

from typing import Any

from astrabox_scheduler_crds.deletion import is_deleted
from astrabox_scheduler_crds.labels import APPLIED_AT_ANNOTATION
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec
from tests.apiserver.provider.scenery import Place


async def stored(place: Place, name: str = "d") -> DeploymentSchedule:
    return await place.api.schedules.get(name)


async def names(place: Place) -> list[str]:
    """Those that are schedules still."""
    return sorted(
        each.metadata.name for each in (await place.api.schedules.list()).items if not is_deleted(each)
    )


async def by_hand(place: Place, deployment_id: str = "d", **fields: Any) -> None:
    spec = ScheduleSpec(
        deployment_id=deployment_id,
        cron=fields.get("cron", "* * * * *"),
        time_zone=fields.get("zone", "UTC"),
        enabled=fields.get("enabled", True),
        payload="{}",
    )
    marks = {APPLIED_AT_ANNOTATION: fields["applied"]} if "applied" in fields else {}
    await place.api.schedules.create(
        DeploymentSchedule(
            metadata=ObjectMeta(name=deployment_key(deployment_id), annotations=marks), spec=spec
        )
    )
