"""How the suite is bound to the reference provider, and to the mutants of it."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any, ClassVar

from astrabox.seams.scheduler import SchedulerProvider
from astrabox.testing.memory_provider import MemoryDeployment, MemorySchedulerProvider
from astrabox.testing.scheduler_conformance import ConformanceBase
from astrabox_scheduler_crds.cron import CronSchedule


class CronCalendar:
    """The project's cron, as the reference provider asks for it."""

    def check(self, cron: str, timezone: str) -> None:
        CronSchedule.parse(cron, timezone)

    def between(self, cron: str, timezone: str, start: datetime, end: datetime) -> Iterator[datetime]:
        return (due for due in CronSchedule.parse(cron, timezone).between(start, end) if due < end)


class MemoryBinding(ConformanceBase):
    """The hooks on `MemoryDeployment` stores."""

    provider_class: ClassVar[type[MemorySchedulerProvider]] = MemorySchedulerProvider
    max_active_schedules: ClassVar[int | None] = None
    poll_interval = 0.001

    def make_provider(self, store: MemoryDeployment) -> MemorySchedulerProvider:
        provider = self.provider_class(
            store,
            calendar=CronCalendar(),
            max_active_schedules=self.max_active_schedules,
        )
        provider.configure(repository_backend=object())
        return provider

    async def fire_due_times(
        self, provider: SchedulerProvider, deployment_id: str, start: datetime, end: datetime
    ) -> None:
        assert isinstance(provider, MemorySchedulerProvider)
        await provider.fire(deployment_id, start, end)

    def store_fault(self, store: MemoryDeployment) -> Any:
        return store.store.fault()
