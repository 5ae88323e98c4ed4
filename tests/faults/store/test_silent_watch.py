"""A watch stays open and brings nothing: who relies on it notices, and meanwhile asks the store itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.history.facts import History
from tests.faults.stage.rig import Rig
from tests.faults.store.health import health
from tests.faults.store.relay import Relay
from tests.faults.store.scenes import (
    apply_all,
    behaving,
    calls,
    create_run,
    ends,
    lease_of,
    minutely,
    next_due,
    run_at,
    start,
    until_observed,
    until_phase,
    until_time,
)

pytestmark = [pytest.mark.faults, pytest.mark.timeout(290)]

BEFORE = ("steady", "off", "gone", "edited")
AFTER = ("steady", "fresh", "edited")


async def change_meanwhile(rig: Rig, host: str) -> None:
    """What the blind ones do not see: one is disabled, one deleted, one new, one edited."""
    door = rig.host(host)
    await door.apply(minutely("off", enabled=False))
    await door.delete("gone")
    await door.apply(minutely("fresh"))
    await door.apply(minutely("edited", {"n": 2}))


async def undue(rig: Rig, host: str) -> None:
    """Nothing more is due, so that the history can come to rest."""
    for name in AFTER:
        await rig.host(host).delete(name)


def changes_count(history: History, dues: Sequence[float]) -> None:
    """G5, G1: at these due times the new state fires, and nothing of the old."""
    wanted = [run_at(name, due) for name in AFTER for due in dues]
    assert ends(history, wanted) == {"Succeeded": len(wanted)}
    for name in wanted:
        assert calls(history, name) == {"start_session": 1, "admit_turn": 1}, name
    for due in dues:
        assert history.runs[run_at("edited", due)]["spec"]["payload"] == '{"n":2}'
        for name in ("off", "gone"):
            assert run_at(name, due) not in history.runs, f"{name} has fired"


@pytest.mark.parametrize("seconds", [20, 75])
async def test_silence_of_operators_and_a_host(rig: Rig, seconds: float) -> None:
    """WA-01, WA-06: longer than a Lease, and longer than a watch: what changed meanwhile is honoured."""
    await start(rig, operators=2, hosts=2)
    await apply_all(rig, "host-1", [minutely(name) for name in BEFORE])
    silent = ("operator-1", "operator-2", "host-1")
    due = next_due(rig, seconds - 10)
    await until_time(rig, due + 10 - seconds)
    mine = [
        (await rig.host("host-1").enqueue("hand", behaving(admit_turn="hang:3"), trigger="manual")).run_id
        for _ in range(3)
    ]
    for process in silent:
        await rig.proxy(process).silence()
    await change_meanwhile(rig, "host-2")
    other = (await rig.host("host-2").enqueue("hand", {}, trigger="manual")).run_id
    await until_phase(rig, [other], {"Succeeded"}, within=15)
    await until_time(rig, due + 10)
    for operator in ("operator-1", "operator-2"):
        assert await health(rig, operator, "readyz") == (503, "the Lease of this operator is not held\n")
        code, text = await health(rig, operator, "healthz")
        assert code == (503 if seconds > 60 else 200), text
        assert seconds < 60 or "sweep of the schedules against a fresh list: last completed" in text
    for process in silent:
        await rig.proxy(process).mend()
    await until_phase(rig, [run_at(name, due) for name in AFTER], {"Succeeded"}, within=30)
    await until_phase(
        rig, [run_at(name, due + 60) for name in AFTER], {"Succeeded"}, within=due + 75 - rig.now()
    )
    for operator in ("operator-1", "operator-2"):
        assert await health(rig, operator, "readyz") == (200, "ok\n")
        assert await health(rig, operator, "healthz") == (200, "ok\n")
    await undue(rig, "host-2")
    history = await rig.collect()
    changes_count(history, [due, due + 60])
    assert ends(history, mine) == {"Succeeded": 3}
    assert_holds(history)


async def test_connection_that_the_network_has_forgotten(rig: Rig) -> None:
    """WA-01, WA-06: only the open connections are dead: the sweeps see what the watches do not bring."""
    async with Relay(rig.plane.url) as to_operator, Relay(rig.plane.url) as to_host:
        await rig.start_operator("operator-1", env=to_operator.environment)
        await rig.start_host("host-1", env=to_host.environment)
        await rig.start_host("host-2")
        await apply_all(rig, "host-2", [minutely(name) for name in BEFORE])
        mine = await lease_of(rig, "host-1")
        due = next_due(rig, 8)
        await until_time(rig, due - 6)
        begun = rig.now()
        with rig.hindered("operator-1", "host-1"):
            assert to_operator.forget()
            assert to_host.forget()
            await change_meanwhile(rig, "host-2")
            await create_run(rig, "by-hand", {}, assignee=mine)
            await until_phase(rig, ["by-hand"], {"Succeeded"}, within=45)  # long before its watch is given up
            dues = [due, due + 60]
            fired = [run_at(name, due) for name in AFTER]
            await until_phase(rig, fired, {"Succeeded"}, within=due + 70 - rig.now())
        fired = [run_at(name, due + 60) for name in AFTER]
        await until_phase(rig, fired, {"Succeeded"}, within=due + 90 - rig.now())
        await until_time(rig, begun + 80)
        await rig.host("host-2").apply(minutely("later", cron="0 0 1 1 *"))
        await until_observed(rig, "later", within=15)  # by a new watch: a sweep takes 27 s at the soonest
        await undue(rig, "host-2")
        history = await rig.collect()
        changes_count(history, dues)
        assert calls(history, "by-hand") == {"start_session": 1, "admit_turn": 1}
        assert {call.host for call in history.calls if call.run_id == "by-hand"} == {"host-1"}
        assert_holds(history)
