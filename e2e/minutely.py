"""Schedules that are due every minute while a test breaks things, and what became of each due time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from astrabox.seams.scheduler import Schedule
from e2e.release import Release
from e2e.waiting import now, until, whole_minute

_SETTLED_SECONDS = 90.0
"""Two Leases may have to run out, one of an operator and one of a host, and pods may have to start."""
_ZONES = ("UTC", "Asia/Kathmandu", "America/St_Johns")


@dataclass(frozen=True)
class Minutely:
    """One schedule in each of three zones; `since` is the first due time of all.

    They were applied from `began` on: a due time between the two is one of some of them, and is not counted.
    """

    release: Release
    ids: Sequence[str]
    began: datetime
    since: datetime

    def check(self, last: datetime, away: tuple[datetime, datetime] | None = None) -> None:
        """Every due time up to `last` has one run, which AstraBox has taken once. Raises AssertionError.

        `away`: between these two it may have none, because nobody was there.
        """
        due_times = {(each, due) for each in self.ids for due in self._due_times(last)}
        wanted = {key for key in due_times if away is None or not away[0] < key[1] < away[1]}

        def done() -> bool:
            finished = {_key(run) for run in self._runs() if run["status"]["phase"] == "Succeeded"}
            return wanted <= finished

        until(
            done, _SETTLED_SECONDS, f"every due time from {self.since} to {last} has a run that has succeeded"
        )
        runs = [run for run in self._runs() if _key(run)[1] <= last and not self._is_uncounted(run)]
        counts = Counter(map(_key, runs))
        assert set(counts.values()) <= {1}, "no due time has two runs"
        assert wanted <= counts.keys() <= due_times, "a run for each due time, and for no other"
        self._check_calls({run["metadata"]["name"]: run["status"] for run in runs if _key(run) in wanted})

    def creators(self, due: datetime) -> set[str]:
        """Lease names of the operators that have fired this due time."""
        return {run["spec"]["createdBy"]["identity"] for run in self._runs() if _key(run)[1] == due}

    def lateness(self, first: datetime | None = None) -> float:
        """Seconds between due time and creation, of the latest of all from the due time `first` on."""
        created = [
            (datetime.fromisoformat(run["metadata"]["creationTimestamp"]) - _key(run)[1]).total_seconds()
            for run in self._runs()
            if first is None or _key(run)[1] >= first
        ]
        return max(created, default=0.0)

    def _check_calls(self, statuses: dict[str, Any]) -> None:
        """Every run has one Session and one turn, whoever called for them and however often."""
        calls = [call for call in self.release.calls() if call.run_id in statuses]
        for name, status in statuses.items():
            own = [call for call in calls if call.run_id == name]
            sessions = {call.session_id for call in own if call.session_id is not None}
            assert sessions == {status["sessionId"]}, name
            assert any(call.call == "admit_turn" and call.phase == "end" for call in own), name

    def _is_uncounted(self, run: dict[str, Any]) -> bool:
        return self.began < _key(run)[1] < self.since

    def _due_times(self, last: datetime) -> list[datetime]:
        minutes = int((last - self.since).total_seconds() // 60)
        return [self.since + timedelta(minutes=each) for each in range(minutes + 1)]

    def _runs(self) -> list[dict[str, Any]]:
        return [run for run in self.release.objects("runinv") if run["spec"]["deploymentId"] in self.ids]


def start_minutely(release: Release) -> Minutely:
    """Apply them."""
    began = now()
    ids = tuple(f"minutely-{number}" for number in range(len(_ZONES)))
    for each, zone in zip(ids, _ZONES, strict=True):
        release.hosts[0].apply(Schedule(each, "* * * * *", zone, True, {"prompt": f"for {each}"}))
    since = whole_minute(now()) + timedelta(minutes=1)
    return Minutely(release, ids, began, since)


def _key(run: dict[str, Any]) -> tuple[str, datetime]:
    return run["spec"]["deploymentId"], datetime.fromisoformat(run["spec"]["dueTime"])
