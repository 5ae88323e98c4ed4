"""The runs of the API server that scheduling tests play."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from astrabox_scheduler_client.errors import AlreadyExists, ApiError, Conflict, NotFound
from astrabox_scheduler_client.runs import reference
from astrabox_scheduler_crds.metadata import ObjectMeta, ObjectRef
from astrabox_scheduler_crds.run import FINISHED, RunInvocation


def merged_with(stored: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """As the API server merges (RFC 7396)."""
    result = dict(stored)
    for key, value in patch.items():
        inner = isinstance(value, Mapping)
        result[key] = merged_with(stored.get(key) or {}, value) if inner else value
    return {key: value for key, value in result.items() if value is not None}


class Runs:
    def __init__(self) -> None:
        self.stored: dict[str, RunInvocation] = {}
        self.creates: list[str] = []
        self.deleted: list[str] = []
        self.fail: Callable[[RunInvocation], ApiError | None] = lambda _: None
        self.conflict_once: set[str] = set()
        self.lists = 0
        self.unlisted: ApiError | None = None
        self.listed: set[str | None] = set()  # in spite of that
        self.versions_seen = count(1)

    async def create(self, run: RunInvocation) -> ObjectMeta:
        await asyncio.sleep(0)
        self.creates.append(run.metadata.name)
        error = self.fail(run)
        if error is not None:
            raise error
        if run.metadata.name in self.stored:
            raise AlreadyExists("there", status=409, reason="AlreadyExists")
        return self.put(run).metadata

    def put(self, run: RunInvocation) -> RunInvocation:
        number = next(self.versions_seen)
        metadata = run.metadata.changed(uid=run.metadata.uid or f"run-{number}", resource_version=str(number))
        run = RunInvocation.from_json(run.changed(metadata=metadata).to_json())
        self.stored[run.metadata.name] = run
        return run

    async def get(self, name: str) -> RunInvocation:
        if name not in self.stored:
            raise NotFound("gone", status=404, reason="NotFound")
        return self.stored[name]

    async def list_refs(self, key: str | None = None) -> list[ObjectRef]:
        self.lists += 1
        await asyncio.sleep(0)
        if self.unlisted is not None and key not in self.listed:
            raise self.unlisted
        refs = [reference(run.metadata) for run in self.stored.values()]
        return [ref for ref in refs if key in (None, ref.deployment)]

    async def list_unfinished_metadata(self) -> list[ObjectMeta]:
        return [run.metadata for run in self.stored.values() if not run.status.finished]

    async def list_finished_refs(self) -> list[ObjectRef]:
        return [reference(run.metadata) for run in self.stored.values() if run.status.phase in FINISHED]

    async def patch_status(
        self, name: str, status: Mapping[str, Any], resource_version: str | None
    ) -> ObjectMeta:
        run = await self.get(name)
        if name in self.conflict_once or resource_version != run.metadata.resource_version:
            self.conflict_once.discard(name)
            raise Conflict("changed", status=409, reason="Conflict")
        merged = merged_with(run.status.to_dict(), status)
        return self.put(run.changed(status=type(run.status).model_validate(merged))).metadata

    async def delete(self, name: str, uid: str | None = None, resource_version: str | None = None) -> None:
        run = await self.get(name)
        if name in self.conflict_once or (uid, resource_version) != (
            run.metadata.uid,
            run.metadata.resource_version,
        ):
            self.conflict_once.discard(name)
            raise Conflict("changed", status=409, reason="Conflict")
        del self.stored[name]
        self.deleted.append(name)
