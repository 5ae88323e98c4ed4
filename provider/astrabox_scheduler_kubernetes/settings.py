"""What an operator may set: environment variables, read once, all mistakes reported together."""

from collections.abc import Mapping
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from astrabox_scheduler_crds.transitions import RetryPolicy

PREFIX: Final = "ASTRABOX_SCHEDULER_KUBERNETES_"


_CONNECTION: Final = frozenset({"namespace", "kubeconfig", "context"})


class SettingsError(ValueError):
    """Settings that cannot be used; `problems` has one sentence for each.

    `usable`: the settings without those that are wrong, None where they may name another cluster or
    namespace than the one that is meant.
    """

    def __init__(self, problems: tuple[str, ...], usable: "Settings | None" = None) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems
        self.usable = usable


class Settings(BaseModel):
    """One field per variable `ASTRABOX_SCHEDULER_KUBERNETES_<NAME>`; an empty variable counts as absent."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    namespace: str | None = Field(
        default=None,
        max_length=63,
        pattern=r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$",
        description="Namespace of schedules and runs. Default: that of the pod, or of the kubeconfig.",
    )
    kubeconfig: str | None = Field(
        default=None,
        description="Path of a kubeconfig file. Default: the pod's own account, then KUBECONFIG.",
    )
    context: str | None = Field(
        default=None, description="Context of the kubeconfig. Default: its current one."
    )
    concurrency: int = Field(
        default=50, ge=1, le=10_000, description="Runs whose handler calls are in progress at once."
    )
    max_attempts: int = Field(
        default=8,
        ge=1,
        le=1000,
        description="Attempts after which a run has failed for good, the first included.",
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
        """Read the variables; raises SettingsError with every mistake in them."""
        given = {name: value for name, value in environ.items() if name.startswith(PREFIX)}
        unknown = sorted(name for name in given if not _known(name))
        problems = [
            f"{name} is not known: remove it, or write one of {', '.join(map(_variable, cls.model_fields))}"
            for name in unknown
        ]
        values = {_field(n): v for n, v in given.items() if n not in unknown and v.strip()}
        wrong: set[str] = set()
        try:
            settings = cls.model_validate(values)
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False)
            problems += [_sentence(each) for each in details]
            wrong = {str(each["loc"][0]) for each in details}
            settings = cls.model_validate({name: v for name, v in values.items() if name not in wrong})
        if settings.retry_first_delay_seconds > settings.retry_max_delay_seconds:
            first, longest = map(_variable, ("retry_first_delay_seconds", "retry_max_delay_seconds"))
            problems.append(f"{first} is larger than {longest}: make it smaller")
        if problems:
            raise SettingsError(tuple(problems), None if unknown or wrong & _CONNECTION else settings)
        return settings

    @property
    def retry_policy(self) -> RetryPolicy:
        """How failed attempts are repeated."""
        return RetryPolicy(
            max_attempts=self.max_attempts,
            first_delay=self.retry_first_delay_seconds,
            max_delay=self.retry_max_delay_seconds,
        )


def _variable(field: str) -> str:
    return PREFIX + field.upper()


def _field(variable: str) -> str:
    return variable.removeprefix(PREFIX).lower()


def _known(variable: str) -> bool:
    return _field(variable) in Settings.model_fields and variable == _variable(_field(variable))


def _sentence(error: Any) -> str:
    field = str(error["loc"][0])
    described = Settings.model_fields[field].description
    return f"{_variable(field)}={error['input']!r}: {error['msg']}. {described}"
