"""The calls that every resource has: JSON in, models out, metadata alone where the rest is not needed."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

from pydantic import Field, ValidationError

from astrabox_scheduler_client.errors import Gone, MalformedAnswer, NotFound
from astrabox_scheduler_client.transport import Transport
from astrabox_scheduler_crds.metadata import KubernetesModel, ObjectMeta

T = TypeVar("T", bound=KubernetesModel)
M = TypeVar("M", bound=KubernetesModel)
R = TypeVar("R")

PAGE_LIMIT: Final = 500
_RESTARTS: Final = 3
_MAX_PATHS: Final = 5
_MERGE_PATCH: Final = "application/merge-patch+json"
_AS_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_AS_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class PartialObjectMetadata(KubernetesModel):
    """An object of which only the metadata was asked for."""

    metadata: ObjectMeta


class ListMeta(KubernetesModel):
    """Metadata of a list; `continue_` is empty on its last page."""

    resource_version: str = ""
    continue_: str = Field(default="", alias="continue")


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An object that does not have the shape of its model; `fields` are paths without values."""

    name: str
    uid: str | None
    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """A consistent list: all of it is the state at `resource_version`.

    `unreadable`: objects that are there and could not be read; one of them spoils no other.
    """

    items: list[R]
    resource_version: str
    unreadable: tuple[Unreadable, ...] = ()


class Resource(Generic[T]):
    """One resource in one namespace. Every method raises a member of `errors.ApiError`."""

    def __init__(self, transport: Transport, api: str, plural: str, namespace: str, model: type[T]) -> None:
        """`api` is the path of group and version, for example `/apis/scheduler.astrabox.io/v1`."""
        self._transport = transport
        self._path = f"{api}/namespaces/{segment(namespace)}/{plural}"
        self._model = model

    @property
    def path(self) -> str:
        """Path of the collection."""
        return self._path

    async def get(self, name: str) -> T:
        """Read one object, consistently. Raises NotFound."""
        return self._read(self._model, await self._transport.request("GET", self._at(name)))

    async def create(self, item: T) -> ObjectMeta:
        """Create `item`; only its metadata comes back. Raises AlreadyExists."""
        answer = await self._transport.request("POST", self._path, body=item.to_json(), accept=_AS_METADATA)
        return self._read(PartialObjectMetadata, answer, write=True).metadata

    async def replace(self, name: str, item: T) -> ObjectMeta:
        """Replace the object `name`. Raises Conflict if its resource version is not `item`'s."""
        answer = await self._transport.request(
            "PUT", self._at(name), body=item.to_json(), accept=_AS_METADATA
        )
        return self._read(PartialObjectMetadata, answer, write=True).metadata

    async def patch(
        self, name: str, patch: Mapping[str, Any], resource_version: str | None = None, subresource: str = ""
    ) -> ObjectMeta:
        """Merge `patch` (JSON values; None removes) into the object.

        With a resource version it raises Conflict if the object has another one by now.
        """
        if resource_version is not None:
            metadata = {**patch.get("metadata", {}), "resourceVersion": resource_version}
            patch = {**patch, "metadata": metadata}
        answer = await self._transport.request(
            "PATCH",
            self._at(name) + (f"/{subresource}" if subresource else ""),
            body=json.dumps(patch, separators=(",", ":")).encode(),
            content_type=_MERGE_PATCH,
            accept=_AS_METADATA,
        )
        return self._read(PartialObjectMetadata, answer, write=True).metadata

    async def delete(self, name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        """Delete the object. Raises NotFound, and Conflict if it is not the one that is meant."""
        conditions = {"uid": uid, "resourceVersion": resource_version}
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {key: value for key, value in conditions.items() if value is not None},
        }
        await self._transport.request("DELETE", self._at(name), body=json.dumps(options).encode())

    async def list_all(self, query: Mapping[str, str] | None = None, limit: int = PAGE_LIMIT) -> Listing[T]:
        """All objects that match, in one consistent state, read page by page; `limit` 0 asks for one page."""
        return await self._list(self._model, "application/json", query or {}, limit, whole)

    async def list_metadata(
        self,
        take: Callable[[ObjectMeta], R],
        query: Mapping[str, str] | None = None,
        limit: int = PAGE_LIMIT,
    ) -> list[R]:
        """What `take` makes of the metadata of each: no more is asked for, and kept once a page is read."""

        def taken(item: PartialObjectMetadata) -> R:
            return take(item.metadata)

        return (await self._list(PartialObjectMetadata, _AS_METADATA_LIST, query or {}, limit, taken)).items

    async def _list(
        self, model: type[M], accept: str, query: Mapping[str, str], limit: int, take: Callable[[M], R]
    ) -> Listing[R]:
        for _ in range(_RESTARTS):
            try:
                return await self._pages(model, accept, query, limit, take)
            except Gone as error:
                gone = error  # the pages read so far are of a state that the store has dropped
        raise gone

    async def _pages(
        self, model: type[M], accept: str, query: Mapping[str, str], limit: int, take: Callable[[M], R]
    ) -> Listing[R]:
        items: list[R] = []
        unreadable: list[Unreadable] = []
        page = dict(query) if limit == 0 else {**query, "limit": str(limit)}
        while True:
            answer = await self._transport.request("GET", self._path, query=page, accept=accept)
            found, bad, meta = self._page(model, answer)
            items += map(take, found)
            unreadable += bad
            if not meta.continue_:
                return Listing(items, meta.resource_version, tuple(unreadable))
            page["continue"] = meta.continue_

    def _page(self, model: type[M], answer: bytes) -> tuple[list[M], list[Unreadable], ListMeta]:
        page = _page_model(model)
        try:
            read = page.model_validate_json(answer)
        except ValidationError:
            return self._page_one_by_one(model, answer)
        return read.items or [], [], read.metadata

    def _page_one_by_one(self, model: type[M], answer: bytes) -> tuple[list[M], list[Unreadable], ListMeta]:
        raw = self._read(_RawPage, answer)
        items: list[M] = []
        unreadable: list[Unreadable] = []
        for value in raw.items or []:
            try:
                items.append(model.model_validate(value))
            except ValidationError as error:
                unreadable.append(_unreadable(value, error))
        return items, unreadable, raw.metadata

    def _at(self, name: str) -> str:
        return f"{self._path}/{segment(name)}"

    def _read(self, model: type[M], answer: bytes, write: bool = False) -> M:
        return read_answer(model, answer, self._path, write=write)


class _RawPage(KubernetesModel):
    metadata: ListMeta
    items: list[dict[str, Any]] | None


class _Page(KubernetesModel, Generic[M]):
    metadata: ListMeta
    items: list[M] | None  # null in an empty list of metadata


@cache
def _page_model(model: type[M]) -> type[_Page[M]]:
    return _Page[model]  # type: ignore[valid-type]


def whole(item: R) -> R:
    """All of it is kept."""
    return item


def segment(name: str) -> str:
    """`name` as one segment of a path. Raises NotFound for one that no object can have.

    An empty name or a `..` would make the path that of another resource.
    """
    if name in {"", ".", ".."}:
        raise NotFound("no object can have this name", reason="InvalidName")
    try:
        return quote(name, safe="")
    except UnicodeEncodeError:
        raise NotFound("no object can have this name", reason="InvalidName") from None


def read_answer(model: type[M], answer: bytes, path: str, *, write: bool = False) -> M:
    """Parse an answer. Raises MalformedAnswer, without quoting it; after a write it is ambiguous."""
    try:
        return model.model_validate_json(answer)
    except ValidationError as error:
        text = f"{path}: not the shape of {model.__name__}: {', '.join(paths_of(error)) or 'no JSON'}"
    raise MalformedAnswer(text, ambiguous=write)


def paths_of(error: ValidationError) -> tuple[str, ...]:
    """Paths of the fields at fault, without their values."""
    details = error.errors(include_url=False, include_context=False, include_input=False)
    return tuple(".".join(str(part) for part in each["loc"]) for each in details[:_MAX_PATHS])


def _unreadable(value: Mapping[str, Any], error: ValidationError) -> Unreadable:
    metadata = value.get("metadata")
    named = metadata if isinstance(metadata, dict) else {}
    return Unreadable(str(named.get("name", "")), named.get("uid"), paths_of(error))
