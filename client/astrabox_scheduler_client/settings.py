"""The settings that every process has which talks to the Kubernetes API: which cluster, which namespace."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from astrabox_scheduler_client.connect import ConnectSettings


class ConnectionSettings(BaseModel):
    """Base of the settings of both sides; a subclass may describe a field in its own words (`described`)."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)
    described: ClassVar[Mapping[str, str]] = {}

    namespace: Annotated[str | None, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")] = Field(
        default=None,
        title="the name of a namespace (small letters, digits and dashes, at most 63)",
        description="Namespace of schedules and runs. Default: that of the pod, or of the kubeconfig.",
    )
    kubeconfig: Annotated[str | None, Field(min_length=1)] = Field(
        default=None,
        description="Path of a kubeconfig file. Default: the pod's own account, then KUBECONFIG.",
    )
    context: Annotated[str | None, Field(min_length=1)] = Field(
        default=None, description="Context of the kubeconfig. Default: its current one."
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        """Put the subclass's words in."""
        for name, text in cls.described.items():
            cls.model_fields[name].description = text

    @property
    def connect(self) -> "ConnectSettings":
        """Which cluster."""
        from astrabox_scheduler_client.connect import ConnectSettings  # noqa: PLC0415 - brings in aiohttp

        return ConnectSettings(kubeconfig=self.kubeconfig, context=self.context)


CONNECTION_FIELDS: Final = frozenset(ConnectionSettings.model_fields)
"""A mistake in one of them may mean another cluster or namespace than the one that is reached."""
