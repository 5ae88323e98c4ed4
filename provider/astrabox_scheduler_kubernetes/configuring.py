"""configure: the seam, the settings and the cluster are checked, and all that is wrong is said at once."""

from collections.abc import Mapping

from astrabox_scheduler_client.environment import SettingsError
from astrabox_scheduler_crds.server_clock import ServerClock
from astrabox_scheduler_kubernetes import seam
from astrabox_scheduler_kubernetes.engine import Engine
from astrabox_scheduler_kubernetes.preflight import missing
from astrabox_scheduler_kubernetes.seam import SchedulerConfigurationError
from astrabox_scheduler_kubernetes.settings import Settings
from astrabox_scheduler_kubernetes.store import Store
from astrabox_scheduler_kubernetes.timing import Timing


def configured(
    provider: type, environ: Mapping[str, str], timing: Timing | None, clock: ServerClock | None
) -> tuple[Settings, Engine]:
    """Settings and engine of a provider that can run here.

    Raises SchedulerConfigurationError with everything that is missing.
    """
    problems = [
        f"AstraBox's scheduler seam differs ({each}): install the release of astrabox-scheduler-kubernetes "
        "that goes with this AstraBox"
        for each in seam.differences(provider)
    ]
    settings: Settings | None
    try:
        settings = Settings.from_environment(environ)
    except SettingsError as error:
        problems += error.problems
        settings = error.usable
    if settings is not None:
        problems += missing(Store(settings))
    if problems or settings is None:
        lines = "".join(f"\n  - {each}" for each in problems)
        raise SchedulerConfigurationError(f"the scheduler provider `kubernetes` cannot run here:{lines}")
    return settings, Engine(settings, timing or Timing(), clock)
