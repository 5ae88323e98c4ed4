"""AstraBox's Deployment records, as far as the time rule goes."""

import json
import os
from hashlib import sha256
from pathlib import Path

from astrabox.host_wire import schedule_from_wire, schedule_to_wire
from astrabox.seams.scheduler import Schedule


class DeploymentRecords:
    """The desired state, one file a Deployment in a folder that the hosts share; in memory without one."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._memory: dict[str, Schedule] = {}
        if folder:
            folder.mkdir(parents=True, exist_ok=True)

    def all(self) -> list[Schedule]:
        """Return every record."""
        if self._folder is None:
            return list(self._memory.values())
        read = [_read(path) for path in sorted(self._folder.glob("*.json"))]
        return [rule for rule in read if rule]

    def get(self, deployment_id: str) -> Schedule | None:
        """Return one record."""
        if self._folder is None:
            return self._memory.get(deployment_id)
        path = self._path(deployment_id)
        return _read(path) if path else None

    def put(self, deployment_id: str, rule: Schedule | None) -> None:
        """Write one record, or remove it."""
        path = self._path(deployment_id)
        if path is None:
            self._memory.pop(deployment_id, None)
            if rule:
                self._memory[deployment_id] = rule
        elif rule is None:
            path.unlink(missing_ok=True)
        else:
            draft = path.with_suffix(f".{os.getpid()}")
            draft.write_text(json.dumps(schedule_to_wire(rule), default=dict))
            draft.replace(path)

    def _path(self, deployment_id: str) -> Path | None:
        if self._folder is None:
            return None
        return self._folder / f"{sha256(deployment_id.encode()).hexdigest()}.json"


def _read(path: Path) -> Schedule | None:
    try:
        return schedule_from_wire(json.loads(path.read_text()))
    except FileNotFoundError:
        return None  # another host has removed it
