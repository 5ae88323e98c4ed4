"""Base of all resource models, times in objects, object metadata, conditions."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema
from pydantic.alias_generators import to_camel


def utc_text(instant: datetime) -> str:
    """RFC 3339 text of an aware datetime in UTC with `Z`; a fraction only where there is one.

    Raises ValueError for a naive datetime.
    """
    return _as_utc(instant).isoformat().replace("+00:00", "Z")


def _as_utc(instant: datetime) -> datetime:
    if instant.tzinfo is None:
        raise ValueError("a time needs a zone: write it in UTC, for example 2026-01-31T02:30:00Z")
    try:
        return instant.astimezone(UTC)
    except OverflowError:  # the API server lets it pass, and only a ValueError is a refusal of this one value
        raise ValueError("this time is in no year from 1 to 9999 in UTC") from None


UtcTime = Annotated[
    datetime,
    AfterValidator(_as_utc),
    PlainSerializer(utc_text, return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""An aware datetime, always UTC; written with `Z`."""


def micro_text(instant: datetime) -> str:
    """RFC 3339 text of an aware UTC datetime with six digits of a second, as Kubernetes' MicroTime has it."""
    return instant.isoformat(timespec="microseconds").replace("+00:00", "Z")


MicroTime = Annotated[
    datetime,
    AfterValidator(_as_utc),
    PlainSerializer(micro_text, return_type=str, when_used="json"),
]
"""As UtcTime, for fields of Kubernetes' type MicroTime: it refuses any other number of digits than six."""


class KubernetesModel(BaseModel):
    """A frozen value that reads and writes Kubernetes' camelCase; unknown fields are ignored."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", ser_json_inf_nan="null"
    )

    def to_json(self) -> bytes:
        """The object as the API server takes it: camelCase, no nulls."""
        return self.model_dump_json(by_alias=True, exclude_none=True).encode()

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @classmethod
    def from_json(cls, text: bytes | str) -> Self:
        """Read an object; raises pydantic.ValidationError where it does not have our shape."""
        return cls.model_validate_json(text)

    def changed(self, **fields: Any) -> Self:
        """A copy with these fields replaced."""
        return self.model_copy(update=fields)


class ObjectMeta(KubernetesModel):
    """The part of metadata that we read; `resource_version` is opaque."""

    name: str = ""
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    generation: int | None = None
    creation_timestamp: UtcTime | None = None
    deletion_timestamp: UtcTime | None = None
    labels: Mapping[str, str] = Field(default_factory=dict)
    annotations: Mapping[str, str] = Field(default_factory=dict)


class ObjectRef(NamedTuple):
    """What is kept of the metadata of objects of which there may be very many: a fifth of the memory."""

    name: str
    uid: str | None
    resource_version: str | None
    created: datetime | None
    deployment: str
    """The key of the AstraBox Deployment that it is of, empty for none."""


class Condition(KubernetesModel):
    """A condition in the shape of metav1.Condition (kstatus and `kubectl wait` read it)."""

    type: str = Field(max_length=64, description="What is or is not so.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it is so.")
    reason: str = Field(
        pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
        max_length=128,
        description="Why, in one word for programs.",
    )
    message: str = Field(default="", max_length=2048, description="Why, for people, and what to do.")
    observed_generation: int | None = Field(
        default=None, description="The generation of the spec that this is about."
    )
    last_transition_time: UtcTime = Field(description="When the status became another one.")


def condition_of(conditions: tuple[Condition, ...], type_: str) -> Condition | None:
    """The condition of this type, None without one."""
    return next((each for each in conditions if each.type == type_), None)


def with_condition(conditions: tuple[Condition, ...], new: Condition) -> tuple[Condition, ...]:
    """The conditions with `new` in its place; its transition time stays where the status did not change."""
    old = condition_of(conditions, new.type)
    if old is not None and old.status == new.status:
        new = new.changed(last_transition_time=old.last_transition_time)
    kept = tuple(each for each in conditions if each.type != new.type)
    return tuple(sorted((*kept, new), key=lambda each: each.type))


MAX_ERROR_LENGTH = 1024


def bounded(text: str, limit: int = MAX_ERROR_LENGTH) -> str:
    """`text` cut to `limit` characters, so that no status write can fail for its size.

    Characters that JSON text cannot carry (lone surrogates) are replaced.
    """
    text = text.encode("utf-8", "replace").decode("utf-8")
    return text if len(text) <= limit else text[: limit - 1] + "…"
