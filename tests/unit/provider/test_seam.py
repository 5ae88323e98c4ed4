import subprocess
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from astrabox.seams import scheduler
from astrabox.seams.scheduler import SchedulerConfigurationError
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from astrabox_scheduler_kubernetes import seam as adapter


def copy() -> Any:
    return types.SimpleNamespace(**vars(scheduler))


def test_the_seam_that_is_installed_fits() -> None:
    assert adapter.differences(KubernetesSchedulerProvider) == []
    assert KubernetesSchedulerProvider.seams_api_version is None
    assert KubernetesSchedulerProvider.name == "kubernetes"


@dataclass
class OtherSchedule:
    deployment_id: str
    cron: str
    enabled: bool
    payload: dict[str, Any]


@dataclass
class OtherRun:
    run_id: str
    tenant: str


class OtherHandler:
    async def start_session(self, invocation: Any, tenant: str) -> str:
        raise NotImplementedError

    async def admit_turn(self, invocation: Any, session_id: str) -> Any: ...


class OtherProvider(scheduler.SchedulerProvider):
    def apply(self, schedule: Any) -> None: ...  # type: ignore[override]
    async def list_runs(self, deployment_id: str, *, limit: int = 50, after: str = "") -> list[Any]:
        raise NotImplementedError


class MoreMethods(scheduler.SchedulerProvider):
    async def pause_all(self) -> None: ...


MoreMethods.__abstractmethods__ = frozenset({*scheduler.SchedulerProvider.__abstractmethods__, "pause_all"})
OtherProvider.__abstractmethods__ = scheduler.SchedulerProvider.__abstractmethods__


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("Schedule", OtherSchedule, "Schedule has no field timezone"),
        ("RunInvocation", OtherRun, "RunInvocation also requires tenant"),
        ("ScheduledRun", str, "ScheduledRun is not a dataclass"),
        ("InvalidSchedule", int, "InvalidSchedule is not an exception"),
        ("RunHandler", OtherHandler, "RunHandler.start_session does not take 1 arguments"),
        ("SchedulerProvider", OtherProvider, "SchedulerProvider.apply is a plain function"),
        ("SchedulerProvider", OtherProvider, "SchedulerProvider.list_runs has the signature"),
        ("SchedulerProvider", MoreMethods, "SchedulerProvider also requires pause_all"),
        ("SchedulerProvider", None, "SchedulerProvider is not a class"),
    ],
)
def test_differences_are_told(name: str, value: Any, told: str) -> None:
    other = copy()
    setattr(other, name, value)
    found = adapter.differences(KubernetesSchedulerProvider, other)
    assert any(told in each for each in found), found


def test_difference_stops_astrabox_at_start_up(monkeypatch: pytest.MonkeyPatch) -> None:
    differences: Callable[[type], list[str]] = lambda _: ["Schedule has no field cron"]  # noqa: E731
    monkeypatch.setattr(adapter, "differences", differences)
    with pytest.raises(SchedulerConfigurationError, match="Schedule has no field cron"):
        KubernetesSchedulerProvider(environ={"ASTRABOX_SCHEDULER_KUBERNETES_X": "1"}).configure(
            repository_backend=None
        )


def test_import_brings_in_nothing_heavy() -> None:
    """The module loads in every process of AstraBox, also where another provider is chosen."""
    program = "import sys, astrabox_scheduler_kubernetes; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {
        "aiohttp",
        "kubernetes_asyncio",
        "croniter",
        "pydantic",
        "kopf",
        "asyncio",
        "astrabox_scheduler_operator",
    }
    assert heavy.isdisjoint(loaded)
