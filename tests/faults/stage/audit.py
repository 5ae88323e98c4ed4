"""What the API server notes of every write, as facts: its audit log, joined with the versions in etcd."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.faults.history.facts import Write
from tests.faults.history.objects import unknown
from tests.faults.stage.revisions import Version

_LOG = "audit.log"
_EVENT = '{"kind":"Event","apiVersion":"audit.k8s.io/v1"'
_READS = ["get", "list", "watch"]
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitManagedFields": True,
    "omitStages": ["ResponseStarted"],
    "rules": [
        {"level": "None", "verbs": _READS},
        {"level": "RequestResponse", "resources": [{"group": "scheduler.astrabox.io"}]},
        {
            "level": "Metadata",
            "resources": [
                {"group": "coordination.k8s.io", "resources": ["leases"]},
                {"group": "events.k8s.io", "resources": ["events"]},
            ],
        },
        {"level": "None"},
    ],
}


def audit_flags(directory: Path) -> Sequence[str]:
    """Write the policy into `directory` and return the API server's flags; no fact is thrown away later."""
    policy = directory / "audit-policy.yaml"
    policy.write_text(yaml.safe_dump(_POLICY))
    return (
        f"--audit-policy-file={policy}",
        f"--audit-log-path={directory / _LOG}",
        "--audit-log-mode=blocking",  # written before the request is carried out, so a kill loses nothing
        "--audit-log-maxsize=100000",
        "--etcd-compaction-interval=0",
    )


def audit_position(directory: Path) -> int:
    """Where the log ends now: what comes later stands behind it."""
    path = directory / _LOG
    return path.stat().st_size if path.exists() else 0


def read_writes(
    directory: Path, position: int, namespace: str, versions: Mapping[tuple[str, int], Version]
) -> list[Write]:
    """The writes in a namespace, in the order in which they came; dry runs left out."""
    path = directory / _LOG
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(position)
        text = file.read().decode(errors="replace")
    events: dict[str, list[Mapping[str, Any]]] = {}
    for event in audit_events(text.split("\n")):
        if event.get("objectRef", {}).get("namespace") == namespace and not _is_dry_run(event):
            events.setdefault(event["auditID"], []).append(event)
    found = sorted((_joined(each) for each in events.values()), key=lambda request: request.write.received)
    return _with_versions(found, versions)


def audit_events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The events of a log that kills have cut: a line that was cut runs on into the next event."""
    for line in lines:
        for text in (line, line[line.rfind(_EVENT) :] if _EVENT in line[1:] else ""):
            try:
                yield json.loads(text)
            except ValueError:
                continue
            break


def _is_dry_run(event: Mapping[str, Any]) -> bool:
    return "dryRun" in parse_qs(urlsplit(event.get("requestURI", "")).query)


@dataclass(frozen=True, slots=True)
class _Request:
    """A write, the resource version in its answer, and what was sent."""

    write: Write
    version: int | None
    sent: Mapping[str, Any]


def _joined(stages: Sequence[Mapping[str, Any]]) -> _Request:
    """One request from what was noted at its stages."""
    last = next((each for each in stages if each["stage"] in ("ResponseComplete", "Panic")), None)
    told = last or stages[0]
    reference = told["objectRef"]
    code = None if last is None else last.get("responseStatus", {}).get("code")
    metadata = (told.get("responseObject") or {}).get("metadata") or {}
    write = Write(
        received=_seconds(told["requestReceivedTimestamp"]),
        completed=None if last is None else _seconds(last["stageTimestamp"]),
        code=code,
        by=told["user"].get("username", "").rsplit(":", 1)[-1],
        verb=told["verb"],
        resource=reference["resource"],
        name=reference.get("name", ""),
        subresource=reference.get("subresource", ""),
    )
    version = metadata.get("resourceVersion")
    return _Request(
        write, int(version) if write.succeeded and version else None, told.get("requestObject") or {}
    )


def _with_versions(found: Sequence[_Request], versions: Mapping[tuple[str, int], Version]) -> list[Write]:
    """Give each write the object it made. One of unknown outcome gets what fits it and nobody else made."""
    claimed = {(each.write.resource, each.version) for each in found if each.version is not None}
    free = [
        version
        for key, version in sorted(versions.items(), key=lambda pair: pair[0][1])
        if key not in claimed
    ]
    writes = []
    for request in found:
        write, number = request.write, request.version
        if number is not None and (made := versions.get((write.resource, number))) is not None:
            writes.append(replace(write, after=made.object))
        elif _untold(request) and (made := next((v for v in free if _may_be(request, v)), None)) is not None:
            free.remove(made)
            writes.append(replace(write, name=made.name, after=made.object))
        else:
            writes.append(write)
    return writes


def _untold(request: _Request) -> bool:
    """Whether the log does not say what was made: nobody knows, or the client was gone before the answer."""
    made_unseen = request.write.succeeded and request.write.verb == "create" and request.version is None
    return unknown(request.write) or made_unseen


def _may_be(request: _Request, version: Version) -> bool:
    write = request.write
    if version.resource != write.resource or version.deleted != (write.verb == "delete"):
        return False
    named = version.created == (write.verb == "create") and write.name in ("", version.name)
    return named and (write.verb == "delete" or _says(version.object, _content(request)))


def _content(request: _Request) -> Mapping[str, Any]:
    """What was sent, without what the store itself decides: a create's status is dropped, for one."""
    sent = request.sent
    metadata = {key: sent.get("metadata", {})[key] for key in ("labels",) if key in sent.get("metadata", {})}
    part = request.write.subresource or "spec"
    return {"metadata": metadata} | ({part: sent[part]} if part in sent else {})


def _says(stored: Any, sent: Any) -> bool:
    """Whether an object has all that was sent; null stands for a field that is not there."""
    if not isinstance(sent, Mapping):
        return bool(stored == sent)
    return all(
        _says(field, value)
        for key, value in sent.items()
        if (field := stored.get(key) if isinstance(stored, Mapping) else None) is not None or value
    )


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()
