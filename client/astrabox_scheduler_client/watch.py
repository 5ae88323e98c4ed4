"""Events of a watch on runs, each a frozen value."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from astrabox_scheduler_client.errors import MalformedAnswer, error_of_status
from astrabox_scheduler_client.resource import PartialObjectMetadata, paths_of
from astrabox_scheduler_crds.metadata import KubernetesModel
from astrabox_scheduler_crds.run import RunInvocation


class _Change(KubernetesModel):
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: RunInvocation


class _Bookmark(KubernetesModel):
    type: Literal["BOOKMARK"]
    object: PartialObjectMetadata


class _Failure(KubernetesModel):
    type: Literal["ERROR"]
    object: dict[str, Any]


class _Named(KubernetesModel):
    type: Literal["ADDED", "MODIFIED", "DELETED"]
    object: PartialObjectMetadata


_LINE: TypeAdapter[_Change | _Bookmark | _Failure] = TypeAdapter(
    Annotated[_Change | _Bookmark | _Failure, Field(discriminator="type")]
)
_NAMED: TypeAdapter[_Named] = TypeAdapter(_Named)

EventType = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "UNREADABLE"]


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One change. `run` is None for BOOKMARK, and for UNREADABLE (a run that does not have our shape).

    DELETED also means "does not match the selector any more". `resource_version` is where a
    following watch goes on. `name` is empty for BOOKMARK.
    """

    type: EventType
    resource_version: str
    name: str = ""
    run: RunInvocation | None = None


def event_of(line: bytes, path: str) -> RunEvent:
    """The event of one line. Raises Gone or another ApiError for an ERROR event, MalformedAnswer."""
    try:
        event = _LINE.validate_json(line)
    except ValidationError as error:
        return _unreadable(line, path, error)
    if isinstance(event, _Failure):
        raise error_of_status("GET", path, event.object)
    version = event.object.metadata.resource_version or ""
    if isinstance(event, _Bookmark):
        return RunEvent("BOOKMARK", version)
    return RunEvent(event.type, version, event.object.metadata.name, event.object)


def _unreadable(line: bytes, path: str, error: ValidationError) -> RunEvent:
    """One run of a wrong shape must not end the watch of all the others."""
    try:
        metadata = _NAMED.validate_json(line).object.metadata
    except ValidationError:
        text = f"GET {path}: not an event of a watch: {', '.join(paths_of(error))}"
    else:
        return RunEvent("UNREADABLE", metadata.resource_version or "", metadata.name)
    raise MalformedAnswer(text)
