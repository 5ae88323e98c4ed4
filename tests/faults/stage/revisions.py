"""Every version that the objects of a namespace ever had, read from etcd's own history."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from tests.faults.history.facts import Object

_PREFIX = "/registry/scheduler.astrabox.io"
_QUIET_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Version:
    """One version of an object; `object` is None in the version that deletes it."""

    resource: str
    name: str
    number: int
    object: Object | None
    created: bool

    @property
    def deleted(self) -> bool:
        """Whether the object is gone from this version on."""
        return self.object is None


async def store_revision(etcd_url: str) -> int:
    """The number of the newest version of anything in etcd."""
    answer = await _post(etcd_url, "/v3/kv/range", {"key": _text("/"), "count_only": True})
    return int(answer["header"]["revision"])


async def read_versions(
    etcd_url: str, namespace: str, plural: str, after: int
) -> dict[tuple[str, int], Version]:
    """All versions later than the store's revision `after`, by resource and number (= resourceVersion)."""
    prefix = f"{_PREFIX}/{plural}/{namespace}/"
    last = await _newest(etcd_url, prefix)
    found: dict[tuple[str, int], Version] = {}
    async for event in _events(etcd_url, prefix, after + 1, last):
        version = _version(event, plural, prefix)
        found[plural, version.number] = version
    return found


async def _newest(etcd_url: str, prefix: str) -> int:
    request = _range(prefix) | {"sort_order": "DESCEND", "sort_target": "MOD", "limit": 1, "keys_only": True}
    answer = await _post(etcd_url, "/v3/kv/range", request)
    return max((int(each["mod_revision"]) for each in answer.get("kvs", [])), default=0)


async def _events(etcd_url: str, prefix: str, start: int, last: int) -> AsyncIterator[Mapping[str, Any]]:
    """What a watch from the past brings, up to version `last` and to a moment of silence."""
    request = {"create_request": _range(prefix) | {"start_revision": start, "fragment": True}}
    seen = 0
    timeout = aiohttp.ClientTimeout(total=60)
    async with (
        aiohttp.ClientSession(timeout=timeout, read_bufsize=2**24) as session,
        session.post(f"{etcd_url}/v3/watch", json=request) as response,
    ):
        pending = b""
        while True:
            try:
                async with asyncio.timeout(_QUIET_SECONDS if seen >= last else 30.0):
                    chunk = await response.content.readany()
            except TimeoutError:
                if seen >= last:
                    return
                raise
            if not chunk:
                raise RuntimeError(f"etcd has ended its watch at {seen} of {last}")
            *complete, pending = (pending + chunk).split(b"\n")
            for line in complete:
                result = json.loads(line)["result"]
                if result.get("canceled"):
                    raise RuntimeError(f"etcd has refused the watch: {result}")
                for event in result.get("events", []):
                    seen = max(seen, int(event["kv"]["mod_revision"]))
                    yield event


def _version(event: Mapping[str, Any], plural: str, prefix: str) -> Version:
    entry = event["kv"]
    number = int(entry["mod_revision"])
    name = base64.b64decode(entry["key"]).decode().removeprefix(prefix)
    if event.get("type") == "DELETE":
        return Version(plural, name, number, None, created=False)
    item = json.loads(base64.b64decode(entry["value"]))
    item["metadata"].pop("managedFields", None)
    item["metadata"]["resourceVersion"] = str(number)
    return Version(plural, name, number, item, created=entry["create_revision"] == entry["mod_revision"])


def _range(prefix: str) -> dict[str, Any]:
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    return {"key": _text(prefix), "range_end": _text(end)}


def _text(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


async def _post(etcd_url: str, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
    async with aiohttp.ClientSession() as session, session.post(etcd_url + path, json=body) as response:
        response.raise_for_status()
        answer: dict[str, Any] = await response.json()
        return answer
