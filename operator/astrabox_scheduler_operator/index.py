"""All schedules of the namespace by object name, fed by the watch and by reads, with no IO."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final

from astrabox_scheduler_client.schedules import Version
from astrabox_scheduler_crds.cron import CronSchedule, InvalidCron, InvalidZone
from astrabox_scheduler_crds.deletion import applied_at
from astrabox_scheduler_crds.firing import FUTURE_TOLERANCE, Observed, observe_rule, observed_from_status
from astrabox_scheduler_crds.metadata import ObjectMeta, bounded
from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.payload import PayloadError, PayloadTooDeepError, decode_payload
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec, ScheduleStatus
from astrabox_scheduler_crds.timeline import timeline_of
from astrabox_scheduler_operator.due_queue import DueQueue
from astrabox_scheduler_operator.entry import Entry, Problem

MAX_KEPT_PAYLOAD: Final = 16 * 1024
"""In characters; a larger payload is read again when its schedule fires."""
NO_RULE: Final = "no-payload"
"""In place of a time rule's fingerprint while the payload cannot be read: its rule then has no due times."""
_LOG = logging.getLogger(__name__)


class ScheduleIndex:
    """Entries by name. `changed` is told each name whose status may have to be written."""

    def __init__(self, queue: DueQueue, changed: Callable[[str], None] = lambda _: None) -> None:
        self._queue = queue
        self._entries: dict[str, Entry] = {}
        self._changed = changed

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(tuple(self._entries.values()))

    def get(self, name: str) -> Entry | None:
        """The schedule of this name."""
        return self._entries.get(name)

    def upsert(self, schedule: DeploymentSchedule, now: datetime) -> None:
        """Take in an object that the watch brings; an older generation of the same object is ignored."""
        old = self._known(schedule.metadata)
        if old is None or old.version[1] <= _version(schedule.metadata)[1]:
            self._take_in(schedule, now)

    def upsert_read(self, schedule: DeploymentSchedule, now: datetime, over: Entry | None) -> None:
        """Take in a consistent read, which is believed over `over`, what was known when it began.

        Its answer may come after what the watch has brought meanwhile: that is believed unless it is older.
        """
        current = self._entries.get(schedule.metadata.name)
        if current is not over:
            if current is None or current.metadata.uid != schedule.metadata.uid:
                return
            if current.version[1] > _version(schedule.metadata)[1]:
                return
        self._take_in(schedule, now)

    def upsert_unreadable(self, metadata: ObjectMeta, fields: tuple[str, ...], now: datetime) -> None:
        """An object that does not have our shape: it never fires and harms no other."""
        old = self._known(metadata)
        if old is not None and old.version[1] >= (metadata.generation or 0):
            return
        message = f"this object cannot be read, correct or delete it: {', '.join(fields)}"
        _LOG.warning("a schedule cannot be read: %s", message, extra={"schedule": metadata.name})
        self._entries[metadata.name] = Entry(
            metadata=metadata,
            deployment_id="",
            enabled=True,  # as far as can be told
            payload=None,
            timeline=None,
            problem=Problem("Unreadable", bounded(message)),
            observed=Observed("", now, None),
            stored=ScheduleStatus(),
            cursor=now,
            readable=False,
        )
        self._queue.drop(metadata.name)
        self._changed(metadata.name)

    def remove(self, name: str, uid: str | None) -> None:
        """The object is gone; another one of the same name stays."""
        entry = self._entries.get(name)
        if entry is not None and entry.metadata.uid == uid:
            del self._entries[name]
            self._queue.drop(name)

    def forget(self, known: Entry | None) -> None:
        """A read has found nothing in the place of what was `known` when it began."""
        if known is not None:
            self.remove(known.name, known.metadata.uid)

    def requeue(self, entry: Entry) -> None:
        """Look at it when it is next due."""
        if entry.next_due is None:
            self._queue.drop(entry.name)
        else:
            self._queue.put(entry.name, entry.next_due)

    def postpone(self, entry: Entry, at: datetime) -> None:
        """Look at it at `at`."""
        self._queue.put(entry.name, at)

    def planned(self, entry: Entry) -> datetime | None:
        """When it will be looked at."""
        return self._queue.planned(entry.name)

    def touch(self, name: str) -> None:
        """Its status may have to be written."""
        self._changed(name)

    def _take_in(self, schedule: DeploymentSchedule, now: datetime) -> None:
        metadata = schedule.metadata
        old = self._known(metadata)
        if old is not None and old.version == _version(metadata) and _is_of(schedule.spec, old):
            self._refresh(old, schedule, now)
        else:
            self._replace(old, schedule, now)
        self._changed(metadata.name)

    def _known(self, metadata: ObjectMeta) -> Entry | None:
        old = self._entries.get(metadata.name)
        return old if old is not None and old.metadata.uid == metadata.uid else None

    def _refresh(self, entry: Entry, schedule: DeploymentSchedule, now: datetime) -> None:
        """Only the status or the labels differ: as often as we write a status ourselves."""
        entry.metadata, entry.stored = schedule.metadata, schedule.status
        since = _since_in_status(entry.observed, schedule, now)
        if since is not None and since != entry.observed.active_since:
            entry.hold_since(since)
            self.requeue(entry)
        if entry.adopt(schedule.status, now):
            entry.plan()
            self.requeue(entry)

    def _replace(self, old: Entry | None, schedule: DeploymentSchedule, now: datetime) -> None:
        spec, metadata = schedule.spec, schedule.metadata
        last = old.observed if old is not None and old.readable else observed_from_status(schedule)
        cron, problem = _parsed(metadata, spec)
        observed = _observed(schedule, last, now, problem)
        timeline = timeline_of(spec, cron, observed.active_since) if cron is not None else None
        entry = Entry(
            metadata=metadata,
            deployment_id=spec.deployment_id,
            enabled=spec.enabled,
            payload=_kept(spec),
            timeline=timeline,
            problem=problem,
            observed=observed,
            stored=schedule.status,
            cursor=timeline.start if timeline is not None else observed.active_since,
        )
        if old is not None:
            entry.cursor = max(entry.cursor, old.cursor)
            entry.last_due, entry.last_run, entry.skipped = old.last_due, old.last_run, old.skipped
            entry.gaps, entry.passed = old.gaps, old.passed
            entry.looked_back, entry.lapsed = old.looked_back - set(old.owed), old.lapsed
        entry.adopt(schedule.status, now)
        entry.plan()
        if problem is not None and (old is None or old.problem != problem):
            _LOG.warning("a schedule does not fire: %s", problem.message, extra=_fields(entry))
        self._entries[metadata.name] = entry
        self.requeue(entry)


def _version(metadata: ObjectMeta) -> Version:
    return metadata.uid or "", metadata.generation or 0


def _kept(spec: ScheduleSpec) -> str | None:
    return spec.payload if len(spec.payload) <= MAX_KEPT_PAYLOAD else None


def _is_of(spec: ScheduleSpec, entry: Entry) -> bool:
    """Whether the entry was made of this spec, as far as it keeps it.

    A store that was restored counts generations anew: the one that is known may come again with another spec.
    """
    rules = (spec.time_rule, NO_RULE)
    return entry.readable and entry.observed.time_rule in rules and entry.payload == _kept(spec)


def _since_in_status(observed: Observed, schedule: DeploymentSchedule, now: datetime) -> datetime | None:
    """Since when the rule holds by the word of the replica that wrote it: one answer for all replicas."""
    status = schedule.status
    if status.active_since is None or status.active_since > now + FUTURE_TOLERANCE:
        return None
    return status.active_since if status.time_rule == observed.time_rule else None


def _observed(
    schedule: DeploymentSchedule, last: Observed | None, now: datetime, problem: Problem | None
) -> Observed:
    """Since when its rule holds. One whose payload cannot be read has no due times until that is corrected.

    They begin then: by hand now, by AstraBox when that was, for it declares no time for a new payload.
    """
    if problem is not None and problem.reason == "InvalidPayload":
        return observe_rule(schedule, last, now, NO_RULE)
    observed = observe_rule(schedule, last, now)
    corrected = applied_at(schedule.metadata)
    if last is None or last.time_rule != NO_RULE or corrected is None:
        return observed
    if not last.active_since < corrected < observed.active_since:
        return observed
    return replace(observed, active_since=corrected)


def _parsed(metadata: ObjectMeta, spec: ScheduleSpec) -> tuple[CronSchedule | None, Problem | None]:
    if metadata.deletion_timestamp is not None:
        return None, Problem("Deleting", "this object is being deleted and waits for somebody's finalizer")
    key = deployment_key(spec.deployment_id)
    if key != metadata.name:
        told = f"the schedule of this Deployment is named {key}: create that one and delete this one"
        return None, Problem("NameMismatch", told)
    try:
        cron = CronSchedule.parse(spec.cron, spec.time_zone)
        # How deeply is for AstraBox to say: it may run on another Python, which reads deeper.
        with contextlib.suppress(PayloadTooDeepError):
            decode_payload(spec.payload)
    except InvalidZone as error:
        return None, Problem("InvalidZone", bounded(str(error)))
    except InvalidCron as error:
        return None, Problem("InvalidCron", bounded(str(error)))
    except PayloadError as error:
        return None, Problem("InvalidPayload", f"{error}: write the text of a JSON object")
    return cron, None


def _fields(entry: Entry) -> dict[str, object]:
    assert entry.problem is not None
    return {"schedule": entry.name, "generation": entry.metadata.generation, "reason": entry.problem.reason}
