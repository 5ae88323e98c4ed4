"""The scheduler provider `kubernetes`, as AstraBox sees it.

What needs the client is imported when it is first used: this module loads in every AstraBox
process, also in those that never dispatch.
"""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from astrabox_scheduler_kubernetes.seam import (
    RunHandler,
    Schedule,
    ScheduledRun,
    SchedulerConfigurationError,
    SchedulerProperties,
    SchedulerProvider,
)

if TYPE_CHECKING:
    from astrabox_scheduler_crds.server_clock import ServerClock
    from astrabox_scheduler_kubernetes.engine import Engine
    from astrabox_scheduler_kubernetes.settings import Settings
    from astrabox_scheduler_kubernetes.timing import Timing

PAUSE_VISIBILITY_SECONDS = 5


class KubernetesSchedulerProvider(SchedulerProvider):
    """Keeps schedules and runs as custom resources; settings are read from the environment.

    `environ`, `timing` and `clock` are for tests; AstraBox gives no arguments.
    """

    name: ClassVar[str] = "kubernetes"

    def __init__(
        self,
        *,
        environ: Mapping[str, str] | None = None,
        timing: "Timing | None" = None,
        clock: "ServerClock | None" = None,
    ) -> None:
        self._timing = timing
        self._clock = clock
        self._environ = os.environ if environ is None else environ
        self._configured: Settings | None = None
        self._engine_: Engine | None = None

    @property
    def properties(self) -> SchedulerProperties:
        """What this engine declares; the limit is the operator's setting."""
        return SchedulerProperties(
            recovery_scope="cluster",
            max_active_schedules=self._settings().max_active_schedules,
            pause_visibility_seconds=PAUSE_VISIBILITY_SECONDS,
        )

    def configure(self, *, repository_backend: Any) -> None:  # noqa: ARG002 - any backend will do
        """Check that everything is there; waits for the cluster for about 15 seconds at most.

        Raises SchedulerConfigurationError with everything that is missing, and what to do about each.
        """
        from astrabox_scheduler_kubernetes.configuring import configured  # noqa: PLC0415

        self._configured, self._engine_ = configured(type(self), self._environ, self._timing, self._clock)

    async def start(self, handler: RunHandler) -> None:
        """Begin to dispatch on the running event loop; nothing if that was begun already."""
        await self._engine().start(handler)

    async def stop(self) -> None:
        """End within the time set for it plus about 5 seconds; runs that have not ended go on elsewhere."""
        if self._engine_ is not None:
            await self._engine_.stop()

    async def reconcile(self, schedules: Sequence[Schedule]) -> None:
        """Make the stored schedules equal to these, except those applied less than a minute ago.

        All are dealt with before an error is raised; it names the Deployments that it is about.
        """
        await self._engine().reconcile(schedules)

    async def apply(self, schedule: Schedule) -> None:
        """Create or change one schedule."""
        await self._engine().apply(schedule)

    async def delete(self, deployment_id: str) -> None:
        """Remove one schedule, or do nothing if there is none."""
        await self._engine().delete(deployment_id)

    async def enqueue(
        self,
        deployment_id: str,
        payload: Mapping[str, Any],
        *,
        trigger: Literal["manual", "replay"],
        replayed_from_run_id: str | None = None,
    ) -> ScheduledRun:
        """Save a run outside the time rule; also before `start`, then the first process to start takes it."""
        return await self._engine().enqueue(deployment_id, payload, trigger, replayed_from_run_id)

    async def list_runs(self, deployment_id: str, *, limit: int = 50) -> list[ScheduledRun]:
        """The newest runs of one Deployment; `limit` is clamped to 1..200."""
        return await self._engine().list_runs(deployment_id, limit)

    def _settings(self) -> "Settings":
        if self._configured is not None:
            return self._configured
        from astrabox_scheduler_client.environment import SettingsError  # noqa: PLC0415
        from astrabox_scheduler_kubernetes.settings import Settings  # noqa: PLC0415

        try:
            return Settings.from_environment(self._environ)
        except SettingsError as error:
            raise SchedulerConfigurationError(str(error)) from error

    def _engine(self) -> "Engine":
        if self._engine_ is None:
            raise SchedulerConfigurationError("configure has not been called, or has failed")
        return self._engine_
