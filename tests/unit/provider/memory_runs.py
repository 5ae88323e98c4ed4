"""Runs in memory, with the versions of a store and faults that a test orders."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from astrabox.seams.scheduler import AdmittedTurn, RunInvocation
from astrabox_scheduler_client.confirm import Confirmed
from astrabox_scheduler_client.errors import ApiError, Conflict, NotFound
from astrabox_scheduler_client.lease_keeper import LeaseKeeper
from astrabox_scheduler_crds.labels import ASSIGNEE_LABEL
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.recovery import Orphan
from astrabox_scheduler_crds.run import Origin, RunSpec, RunStatus
from astrabox_scheduler_crds.run import RunInvocation as StoredRun
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_crds.transitions import RetryPolicy
from astrabox_scheduler_kubernetes.attempt import Attempt, Desk
from astrabox_scheduler_kubernetes.calls import Calls
from astrabox_scheduler_kubernetes.confirming import Confirming
from astrabox_scheduler_kubernetes.dispatcher import Dispatcher
from astrabox_scheduler_kubernetes.recorder import Recorder
from astrabox_scheduler_kubernetes.suspects import Suspects
from astrabox_scheduler_kubernetes.timing import SharedPauses, Timing
from astrabox_scheduler_kubernetes.waiting import Entry

NOW = datetime(2026, 6, 1, 12, 0, 30, tzinfo=UTC)
CLAIM = "save assignee,attempts,phase,startedAt"
SESSION = "save sessionId"
TURN = "save conditions,finishedAt,phase,turnId"
WHOLE = [CLAIM, "start_session", SESSION, "admit_turn s1", TURN]
FAST = Timing(first_pause=0.0, longest_pause=0.0, recheck=0.0)


class Clock(ServerClock):
    def __init__(self) -> None:
        self.at = NOW
        super().__init__(wall=self._seconds, monotonic=lambda: 0.0)

    def _seconds(self) -> float:
        return self.at.timestamp()


class MemoryRuns:
    """One version for each write; `log` has every write and call in order."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.stored: dict[str, StoredRun] = {}
        self.faults: list[ApiError | None] = []
        self.lost_answers = 0
        self._version = 0

    def put(self, run: StoredRun) -> StoredRun:
        self._version += 1
        run = run.changed(metadata=run.metadata.changed(resource_version=str(self._version)))
        self.stored[run.metadata.name] = run
        return run

    def label(self, name: str, **labels: str) -> None:
        run = self.stored[name]
        self.put(run.changed(metadata=run.metadata.changed(labels={**run.metadata.labels, **labels})))

    async def get(self, name: str) -> StoredRun:
        if name not in self.stored:
            raise NotFound("gone", status=404, reason="NotFound")
        return self.stored[name]

    async def patch_status(
        self, name: str, status: Mapping[str, Any], resource_version: str | None
    ) -> ObjectMeta:
        fault = self.faults.pop(0) if self.faults else None
        if fault is not None and not fault.ambiguous:
            raise fault
        run = await self._at(name, resource_version)
        merged = {k: v for k, v in {**run.status.to_dict(), **status}.items() if v is not None}
        saved = self.put(run.changed(status=RunStatus.model_validate(merged)))
        self.log.append(f"save {','.join(sorted(status))}")
        if fault is not None:
            raise fault
        return saved.metadata

    async def patch_labels(
        self, name: str, labels: Mapping[str, str | None], *, resource_version: str | None = None
    ) -> ObjectMeta:
        run = await self._at(name, resource_version)
        merged = {k: v for k, v in {**run.metadata.labels, **labels}.items() if v is not None}
        self.log.append(f"label {','.join(sorted(labels))}")
        return self.put(run.changed(metadata=run.metadata.changed(labels=merged))).metadata

    async def _at(self, name: str, version: str | None) -> StoredRun:
        run = await self.get(name)
        if version not in (None, run.metadata.resource_version):
            raise Conflict("changed", status=409, reason="Conflict")
        return run


class Settled:
    """Every create is answered."""

    def is_open(self, name: str) -> bool:
        return False

    async def decided(self, name: str) -> None:
        return


class World:
    """An attempt's surroundings, each part under the test's hand."""

    def __init__(self, **policy: Any) -> None:
        self.log: list[str] = []
        self.runs = MemoryRuns(self.log)
        self.clock = Clock()
        self.name = "me"
        self.lapses = 0
        self.holding = True
        self.stopping = False
        self.enabled = True
        self.acquired: datetime | None = NOW - timedelta(hours=1)
        self.settled: list[Orphan] = []
        """Answers about runs due before `acquired`, one for each question."""
        self.looks = 0
        self.look_faults: list[ApiError] = []
        self.session: Any = "s1"
        self.turn: Any = AdmittedTurn("t1", None)
        self.seen: list[RunInvocation] = []
        self.during: Any = None
        self.desk = Desk(
            runs=self.runs,
            recorder=Recorder(self.runs, FAST),
            confirming=Confirming(self),
            settle=self.settle,
            fence=self,
            calls=Calls(self, 5.0),
            policy=RetryPolicy(**policy),
            suspects=Suspects(RetryPolicy(**policy)),
            clock=self.clock,
            timing=FAST,
            again=SharedPauses(FAST),
            stopping=lambda: self.stopping,
        )

    def held(self) -> bool:
        return self.holding

    async def settle(self, run: StoredRun, since: datetime) -> Orphan:
        assert since == self.acquired
        return self.settled.pop(0)

    async def versions(self, names: Any) -> Confirmed:
        self.looks += 1
        if self.look_faults:
            raise self.look_faults.pop(0)
        versions = dict.fromkeys(names, ("u", 1)) if self.enabled else {}
        return Confirmed(begun=0.0, at=self.clock.at, versions=versions)

    async def start_session(self, invocation: RunInvocation) -> str:
        return await self._answer("start_session", invocation, self.session)  # type: ignore[no-any-return]

    async def admit_turn(self, invocation: RunInvocation, session_id: str) -> AdmittedTurn:
        return await self._answer(f"admit_turn {session_id}", invocation, self.turn)  # type: ignore[no-any-return]

    async def _answer(self, call: str, invocation: RunInvocation, answer: Any) -> Any:
        self.log.append(call)
        self.seen.append(invocation)
        if self.during is not None:
            await self.during(call)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def run(self, *, scheduled: bool = False, age: float = 0.0, status: RunStatus | None = None) -> StoredRun:
        created = Origin(identity="op", at=NOW, confirmed_at=NOW - timedelta(seconds=age))
        return self.runs.put(
            StoredRun(
                metadata=ObjectMeta(name="r", labels={ASSIGNEE_LABEL: "me"}),
                spec=RunSpec(
                    deployment_id="d",
                    trigger="schedule" if scheduled else "manual",
                    due_time=NOW.replace(second=0) if scheduled else None,
                    payload='{"n":1.0}',
                    created_by=created,
                ),
                status=status or RunStatus(),
            )
        )

    def beat(self) -> None:
        """Its event loop is alive."""

    def drain(self) -> None:
        """It is stopping."""

    def dispatcher(self, runs: Any = None, providers: Any = None) -> Dispatcher:
        """With one place; the Lease is this world's, its store and who else is there what the test gives."""
        keeper = cast(LeaseKeeper, self)
        return Dispatcher(runs, keeper, providers, self.desk, concurrency=1, undecided=Settled())

    def attempt(self, run: StoredRun | None = None) -> Attempt:
        version = run.metadata.resource_version if run else None
        return Attempt(Entry("r", "me", 0, version, 0.0, run), self.desk)

    @property
    def status(self) -> RunStatus:
        return self.runs.stored["r"].status
