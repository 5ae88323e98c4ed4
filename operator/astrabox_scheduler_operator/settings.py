"""What can be set for an operator: environment variables."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, field_validator

from astrabox_scheduler_client.environment import accepted, read_settings
from astrabox_scheduler_client.settings import ConnectionSettings
from astrabox_scheduler_crds.firing import CATCH_UP_WINDOW, MAX_CATCH_UP_WINDOW
from astrabox_scheduler_crds.retention import DEFAULT_KEEP

PREFIX: Final = "ASTRABOX_SCHEDULER_OPERATOR_"
LogLevel = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


class Settings(ConnectionSettings):
    """What can be set; the variable of a field is its name in capitals behind the prefix."""

    described: ClassVar[Mapping[str, str]] = {
        "namespace": "namespace to serve; default: that of the pod or of the kubeconfig's context",
        "kubeconfig": "path of a kubeconfig; default: the pod's service account, else KUBECONFIG",
        "context": "context of the kubeconfig; default: its current context",
    }

    catch_up_window_seconds: int = Field(
        default=int(CATCH_UP_WINDOW.total_seconds()),
        ge=30,
        le=int(MAX_CATCH_UP_WINDOW.total_seconds()),
        description="how late a due time may still fire, in seconds",
    )
    history_limit: int = Field(
        default=DEFAULT_KEEP, ge=1, le=100_000, description="finished runs to keep per AstraBox Deployment"
    )
    health_host: Annotated[str, Field(min_length=1)] = Field(
        default="0.0.0.0",  # noqa: S104 - the kubelet asks from outside of the pod
        description="address of /healthz, /readyz and /metrics",
    )
    health_port: int = Field(default=8080, ge=0, le=65_535, description="port of the same; 0: any free one")
    log_level: LogLevel = Field(default="INFO", description="least level of what is logged")
    log_format: Literal["json", "text"] = Field(
        default="json", description="format of the log: one JSON object a line, or text"
    )
    create_concurrency: int = Field(
        default=32, ge=1, le=64, description="runs that are created at the same time"
    )

    @field_validator("log_level", mode="before")
    @classmethod
    def _in_capitals(cls, value: object) -> object:
        return value.upper() if isinstance(value, str) else value

    @field_validator("log_format", mode="before")
    @classmethod
    def _in_small_letters(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Self:
        """Read every variable that begins with the prefix. Raises SettingsError."""
        return read_settings(cls, PREFIX, environ)

    @property
    def catch_up_window(self) -> timedelta:
        """How late a due time may still fire."""
        return timedelta(seconds=self.catch_up_window_seconds)


def settings_help() -> str:
    """The variables, their defaults and meanings, for `--help`."""
    lines = ["environment variables:"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f" (default {field.default})"
        lines.append(f"  {PREFIX}{name.upper()}\n      {field.description}{default}")
        lines.append(f"      {accepted(Settings, name)}")
    return "\n".join(lines)
