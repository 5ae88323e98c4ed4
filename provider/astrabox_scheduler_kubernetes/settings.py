"""What an operator may set: environment variables, read once, all mistakes reported together."""

from collections.abc import Mapping
from typing import Final, Self

from pydantic import Field

from astrabox_scheduler_client.environment import SettingsError, read_settings
from astrabox_scheduler_client.settings import CONNECTION_FIELDS, ConnectionSettings
from astrabox_scheduler_crds.transitions import RetryPolicy

PREFIX: Final = "ASTRABOX_SCHEDULER_KUBERNETES_"


class Settings(ConnectionSettings):
    """One field per variable `ASTRABOX_SCHEDULER_KUBERNETES_<NAME>`; an empty variable counts as absent."""

    concurrency: int = Field(
        default=50, ge=1, le=10_000, description="Runs whose handler calls are in progress at once."
    )
    max_attempts: int = Field(
        default=8,
        ge=1,
        le=1000,
        description="Attempts after which a run has failed for good, the first included. From 3 on, a run "
        "that takes its process down each time fails alone; with less, runs in progress beside it may, too.",
    )
    retry_first_delay_seconds: float = Field(
        default=2.0, ge=0, le=86_400, description="Seconds between the first attempt and the second."
    )
    retry_max_delay_seconds: float = Field(
        default=300.0,
        ge=0,
        le=86_400,
        description="Seconds that the wait between attempts, tripled each time, may reach.",
    )
    handler_timeout_seconds: float = Field(
        default=900.0,
        gt=0,
        le=86_400,
        description="Seconds that one call of AstraBox may take; it is then cancelled and counts as failed.",
    )
    request_timeout_seconds: float = Field(
        default=10.0, gt=0, le=60, description="Seconds that one call of the Kubernetes API may take."
    )
    stop_timeout_seconds: float = Field(
        default=25.0,
        ge=0,
        le=3600,
        description="Seconds that runs in progress get to end when AstraBox stops.",
    )
    max_active_schedules: int | None = Field(
        default=None, ge=1, description="Enabled schedules that are accepted. Default: no limit."
    )
    loop_dead_after_seconds: float = Field(
        default=120.0,
        ge=10,
        le=86_400,
        description="Seconds of a blocked event loop after which others take over this process's runs.",
    )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read the variables; raises SettingsError with every mistake in them.

        Its `usable` is None where the settings may name another cluster or namespace than is meant.
        """
        problems: tuple[str, ...] = ()
        in_doubt: frozenset[str] = frozenset()
        try:
            settings = read_settings(cls, PREFIX, environ)
        except SettingsError as error:
            problems, in_doubt, settings = error.problems, error.in_doubt, error.usable
            assert isinstance(settings, cls), "each field has a default that stands alone"
        if settings.retry_first_delay_seconds > settings.retry_max_delay_seconds:
            first, longest = f"{PREFIX}RETRY_FIRST_DELAY_SECONDS", f"{PREFIX}RETRY_MAX_DELAY_SECONDS"
            problems += (f"{first} is larger than {longest}: make it smaller",)
        if problems:
            raise SettingsError(problems, None if in_doubt & CONNECTION_FIELDS else settings, in_doubt)
        return settings

    @property
    def retry_policy(self) -> RetryPolicy:
        """How failed attempts are repeated."""
        return RetryPolicy(
            max_attempts=self.max_attempts,
            first_delay=self.retry_first_delay_seconds,
            max_delay=self.retry_max_delay_seconds,
        )
