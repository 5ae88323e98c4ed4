"""The bytes that docs/install.md tells are those of a real API server."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

import pytest

from astrabox.seams.scheduler import Schedule
from e2e.install_doc import PAGE
from e2e.release import Release
from e2e.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

PAYLOADS = {"1 KiB": 1024, "100 KiB": 100 * 1024}
UNITS = {"kB": 1e3, "MB": 1e6, "GB": 1e9}
HISTORY, DEPLOYMENTS = 200, 100
ROW = re.compile(r"\| (\d+ KiB) \|" + r" ([\d.]+ [kMG]B) \|" * 4)


def told() -> dict[str, list[float]]:
    """Bytes by payload: of a schedule, a run, a history, and the histories of all."""
    found = {}
    for row in ROW.findall(PAGE.read_text()):
        figures = (cell.split() for cell in row[1:])
        found[row[0]] = [float(number) * UNITS[unit] for number, unit in figures]
    return found


def payload_of(size: int) -> dict[str, str]:
    """Exactly so many bytes when it is stored."""
    return {"prompt": "x" * (size - len('{"prompt":""}'))}


def stored(release: Release, plural: str, name: str) -> dict[str, Any]:
    path = f"/apis/scheduler.astrabox.io/v1/namespaces/{release.namespace}/{plural}/{name}"
    found: dict[str, Any] = json.loads(release.kubectl("get", "--raw", path))
    del found["metadata"]["resourceVersion"]  # which is not stored in the object
    return found


def size_of(item: dict[str, Any]) -> int:
    return len(json.dumps(item, separators=(",", ":")).encode())


def test_the_table_of_sizes(release: Release) -> None:
    table = told()
    assert table.keys() == PAYLOADS.keys()
    ids = {name: secrets.token_hex(16) for name in PAYLOADS}
    for name, size in PAYLOADS.items():
        release.hosts[0].apply(Schedule(ids[name], "* * * * *", "Europe/Berlin", True, payload_of(size)))

    def runs() -> dict[str, str]:
        found = {
            run["spec"]["deploymentId"]: run["metadata"]["name"]
            for run in release.objects("runinv", "--field-selector", "status.phase=Succeeded")
        }
        return found if found.keys() >= set(ids.values()) else {}

    ended = until(runs, 100, "a run of each has succeeded")
    for name, (schedule, run, history, all_histories) in table.items():
        measured = stored(release, "deploymentschedules", ids[name])
        assert len(measured["spec"]["payload"]) == PAYLOADS[name]
        assert size_of(measured) == pytest.approx(schedule, rel=0.05), "a schedule"
        assert size_of(stored(release, "runinvocations", ended[ids[name]])) == pytest.approx(run, rel=0.05)
        assert history == pytest.approx(run * HISTORY, rel=0.1)
        assert all_histories == pytest.approx(history * DEPLOYMENTS, rel=0.1)
