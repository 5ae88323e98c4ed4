"""Clocks that are wrong, each in its own way: no run is lost or taken by them, one order for all."""

from datetime import datetime

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.scenes.calls import calls_of, steps, until_begun
from tests.faults.scenes.objects import status
from tests.faults.scenes.processes import TAKEN_OVER_WITHIN
from tests.faults.scenes.runs import RUN_NOW, behaving, enqueue, until_phase
from tests.faults.stage.clock import Clock
from tests.faults.stage.rig import Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(280)]

HOSTS = ("host-1", "host-2", "host-3", "host-4")


@pytest.mark.waits(60)
async def test_wrong_clocks_take_nothing_from_the_living(rig: Rig) -> None:
    """RE-07: 30 s ahead, 30 s behind, jumping by 5 min: one execution each, one order, and a loss is seen."""
    await rig.start_host("host-1", clock=Clock.offset(30))
    await rig.start_host("host-2", clock=Clock.offset(-30))
    await rig.start_host("host-3", clock=Clock.steps())
    await rig.start_host("host-4")
    long = {host: (await enqueue(rig, host, behaving(admit_turn="hang:25")))[0] for host in HOSTS}
    await until_begun(rig, long.values(), "admit_turn")
    order: list[str] = []
    for jump in (300, 0, -300, 0):
        rig.set_clock("host-3", jump)
        for host in HOSTS:
            order += await enqueue(rig, host, {})
            await until_phase(rig, order[-1:], "Succeeded", within=30)
            begun = int(rig.now())  # within one second of the API server only right clocks have an order
            await rig.until(lambda: int(rig.now()) > begun, 2)  # noqa: B023
    await until_phase(rig, list(long.values()), "Succeeded", within=60)
    (orphan,) = await enqueue(rig, "host-4", behaving("host-4", start_session="hang:120"))
    await until_begun(rig, [orphan], "start_session")
    killed = rig.now()
    await rig.kill("host-4")
    await until_phase(rig, [orphan], "Succeeded", within=60)
    history = await rig.collect()
    for host, name in long.items():
        assert steps(history, name) == [(host, "start_session"), (host, "admit_turn")], (
            "taken from the living"
        )
    for name in order:
        (turn,) = calls_of(history, name, "admit_turn")
        written = datetime.fromisoformat(status(history.runs[name])["finishedAt"]).timestamp()
        assert turn.ended is not None
        assert abs(written - turn.ended) < 5, f"{turn.host} has written the time of its own clock"
    heir = calls_of(history, orphan)[1]
    assert heir.begun - killed <= TAKEN_OVER_WITHIN
    assert history.ledgers is not None
    for host in HOSTS[:3]:
        rows = [row["run_id"] for row in history.ledgers[host][RUN_NOW]]
        assert [name for name in reversed(rows) if name in order] == order, f"{host} lists another order"
    assert_holds(history)
