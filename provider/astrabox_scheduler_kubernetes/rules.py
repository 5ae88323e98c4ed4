"""What is stored for an AstraBox Schedule: decided from what is wanted and what is there, without IO."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from astrabox_scheduler_crds.cron import CronError, CronSchedule
from astrabox_scheduler_crds.deletion import alive, applied_at, is_deleted
from astrabox_scheduler_crds.labels import APPLIED_AT_ANNOTATION, DEPLOYMENT_LABEL
from astrabox_scheduler_crds.metadata import ObjectMeta, utc_text
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.payload import encode_payload
from astrabox_scheduler_crds.schedule import (
    MAX_DEPLOYMENT_ID_LENGTH,
    MAX_PAYLOAD_LENGTH,
    DeploymentSchedule,
    ScheduleSpec,
)
from astrabox_scheduler_crds.timeline import next_change, replaced
from astrabox_scheduler_kubernetes.seam import InvalidSchedule, Schedule, ScheduleCapacityExceeded

MAX_STORED_LENGTH: Final = 1_400_000
"""Bytes of a payload in the stored object. The store takes 1.5 MiB of an object: what is written to it later
(claims, the Session, the error) must find room, or the run could never end."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A Schedule of AstraBox in the shape in which it is stored; nothing is judged yet but its size."""

    name: str
    deployment_id: str
    cron: str
    time_zone: str
    enabled: bool
    payload: str


def wanted(schedule: Schedule) -> Wanted:
    """Encode a Schedule.

    Raises PayloadError, InvalidSchedule (an id that is no text), ScheduleCapacityExceeded (too long).
    """
    check_deployment_id(schedule.deployment_id)
    return Wanted(
        name=deployment_key(schedule.deployment_id),
        deployment_id=schedule.deployment_id,
        cron=collapsed(schedule.cron),
        time_zone=schedule.timezone,
        enabled=schedule.enabled,
        payload=payload_text(schedule.payload),
    )


def check_deployment_id(deployment_id: str) -> None:
    """Refuse ids that cannot be stored: lone surrogates are no characters, and there is a longest one."""
    if not storable(deployment_id):
        raise InvalidSchedule("The Deployment id has characters that cannot be stored (lone surrogates).")
    if len(deployment_id) > MAX_DEPLOYMENT_ID_LENGTH:
        raise ScheduleCapacityExceeded(
            f"The Deployment id is longer than {MAX_DEPLOYMENT_ID_LENGTH} characters."
        )


def storable(text: str) -> bool:
    """Whether it can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def payload_text(payload: Mapping[str, object]) -> str:
    """The payload as it is stored. Raises PayloadError, ScheduleCapacityExceeded."""
    text = encode_payload(payload)
    if len(text.encode()) > MAX_PAYLOAD_LENGTH:
        raise ScheduleCapacityExceeded(
            f"The payload is larger than {MAX_PAYLOAD_LENGTH} bytes: shorten the prompt."
        )
    if _stored_length(text) > MAX_STORED_LENGTH:
        raise ScheduleCapacityExceeded(
            f"The payload is larger than {MAX_STORED_LENGTH} bytes once its quotation marks, line breaks, "
            "backslashes and <, >, & are escaped: shorten the prompt."
        )
    return text


def _stored_length(text: str) -> int:
    """Bytes of the text in an object as the API server stores it.

    That is JSON in which <, >, & and the separators U+2028 and U+2029 have six bytes each (measured).
    """
    escaped = 5 * sum(map(text.count, "<>&")) + 3 * sum(map(text.count, "\u2028\u2029"))
    return len(json.dumps(text, ensure_ascii=False).encode()) + escaped


def collapsed(cron: str) -> str:
    """The expression with single blanks between its fields."""
    return re.sub(r"[ \t]+", " ", cron).strip(" ")


def desired(want: Wanted, stored: DeploymentSchedule | None, now: datetime) -> ScheduleSpec:
    """The spec to store at `now` (aware UTC).

    The expression and the zone are judged when they are new, so that a schedule whose zone has left
    the tz database since can still be disabled and edited. Due times count from `now` on when it is
    created, enabled, or gets another expression or zone; those of a rule that ends here stay owed in
    `earlier_rules`. A tombstone counts as nothing stored. Raises InvalidSchedule.
    """
    spec = stored.spec if stored is not None and not is_deleted(stored) else None
    same_rule = spec is not None and (collapsed(spec.cron), spec.time_zone) == (want.cron, want.time_zone)
    if not same_rule:
        _check_time_rule(want)
    if spec is not None and same_rule and spec.enabled == want.enabled:
        since, earlier = spec.active_since, spec.earlier_rules
    else:
        since = next_change(stored, now)
        earlier = replaced(stored, since, now, enabled=want.enabled) if stored is not None else None
    return ScheduleSpec(
        deployment_id=want.deployment_id,
        cron=want.cron,
        time_zone=want.time_zone,
        enabled=want.enabled,
        payload=want.payload,
        active_since=since,
        earlier_rules=earlier,
    )


def put_back(previous: DeploymentSchedule, found: DeploymentSchedule, now: datetime) -> ScheduleSpec:
    """The spec that undoes a change nobody was told of: the time rule of `previous` held all the time."""
    spec = previous.spec
    if spec.time_rule == found.spec.time_rule:
        return spec
    at = next_change(found, now)
    return spec.changed(active_since=at, earlier_rules=replaced(previous, at, now, enabled=spec.enabled))


def differs(spec: ScheduleSpec, stored: DeploymentSchedule) -> bool:
    """Whether storing `spec` would change anything."""
    return spec != stored.spec


def written(
    want: Wanted, spec: ScheduleSpec, stored: DeploymentSchedule | None, now: datetime | None
) -> DeploymentSchedule:
    """The object to write on top of the stored one; labels and annotations of others stay.

    `now` marks it as applied at that time; None leaves the mark as it is.
    """
    old = stored.metadata if stored is not None else ObjectMeta(name=want.name)
    annotations = dict(old.annotations)
    if now is not None:
        annotations[APPLIED_AT_ANNOTATION] = utc_text(now)
    metadata = old.changed(labels={**alive(old.labels), DEPLOYMENT_LABEL: want.name}, annotations=annotations)
    return DeploymentSchedule(metadata=metadata, spec=spec)


def applied_recently(stored: DeploymentSchedule, now: datetime, seconds: float) -> bool:
    """Whether it was written less than `seconds` before `now`, so that an older snapshot must leave it alone.

    By an apply or a delete. A mark that is no time, or lies far in the future, was written by hand.
    """
    at = applied_at(stored.metadata)
    return at is not None and abs(now - at) < timedelta(seconds=seconds)


def is_overtaken(
    at: datetime | None, first: datetime | None, given: datetime, now: datetime, clocks: float
) -> bool:
    """Whether a command that was given `at` is a later one than ours, which was `given`, so that it stays.

    `first` is the mark of what our call found at its first look: that was written before ours began to
    write, and is the later one only if clocks, which differ by up to `clocks` seconds, cannot explain
    it; else an apply after an apply, by replicas whose clocks differ, would do nothing. What came after
    that look overlaps with ours, and the marks decide. A mark from the future was written by hand.
    All times aware UTC, None where there is no mark.
    """
    slack = timedelta(seconds=clocks)
    if at is None or at > now + slack:
        return False
    return at > (given + slack if at == first else given)


def _check_time_rule(want: Wanted) -> None:
    try:
        CronSchedule.parse(want.cron, want.time_zone)
    except CronError as error:
        raise InvalidSchedule(str(error)) from error  # it names the field and says what to write
