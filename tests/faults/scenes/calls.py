"""Questions to the record of handler calls, and waits for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tests.faults.history.facts import Call, History
from tests.faults.stage.rig import Rig


def calls_of(history: History, run_id: str, step: str | None = None, by: str | None = None) -> list[Call]:
    """The calls for a run in their order."""
    found = [
        call
        for call in history.calls
        if call.run_id == run_id and step in (None, call.step) and by in (None, call.host)
    ]
    return sorted(found, key=lambda call: call.begun)


def steps(history: History, run_id: str) -> list[tuple[str, str]]:
    """Who was called with which step, in order."""
    return [(call.host, call.step) for call in calls_of(history, run_id)]


def step_counts(history: History, run_id: str) -> Counter[str]:
    """How often each step was called for a run."""
    return Counter(step for _, step in steps(history, run_id))


def assert_called_once(history: History, names: Iterable[str]) -> None:
    """Of each of these runs both steps were called, once each."""
    for name in names:
        assert step_counts(history, name) == {"start_session": 1, "admit_turn": 1}, name


def first_calls(history: History, step: str = "start_session") -> dict[str, Call]:
    """The first call of this step for each run."""
    found: dict[str, Call] = {}
    for call in sorted(history.calls, key=lambda each: each.begun):
        if call.step == step:
            found.setdefault(call.run_id, call)
    return found


async def until_begun(rig: Rig, names: Iterable[str], step: str, within: float = 60) -> None:
    """Wait until the handler has been called for each of these runs."""
    missing = set(names)

    async def there() -> bool:
        missing.difference_update(call.run_id for call in rig.calls() if call.step == step)
        return not missing

    await rig.until(there, within, f"{step} is called for {len(missing)} runs")
