"""Hosts that are killed: what they had in hand goes on elsewhere, once, under the same run id."""

import sys
from collections import Counter

import pytest

from tests.faults.history.check import assert_holds
from tests.faults.history.slack import Slack
from tests.faults.scenes.calls import calls_of, steps, until_begun
from tests.faults.scenes.objects import status
from tests.faults.scenes.processes import TAKEN_OVER_WITHIN, host_settings
from tests.faults.scenes.runs import behaving, ended_as, enqueue, until_phase
from tests.faults.scenes.writes import writes_to_runs
from tests.faults.stage.rig import OpenRig, Rig

pytestmark = [pytest.mark.faults, pytest.mark.timeout(280)]

ORPHANS = 200
REFUSED_AT_MOST = 0.05


async def test_killed_host_is_continued_with_the_saved_session(rig: Rig) -> None:
    """RE-11: one of two heirs goes on, 20 s after the kill at most, and starts no Session that was saved."""
    await rig.start_hosts(3, env=host_settings(CONCURRENCY=2))
    (starting,) = await enqueue(rig, "host-1", behaving("host-1", start_session="hang:120"))
    (admitting,) = await enqueue(rig, "host-1", behaving("host-1", admit_turn="hang:120"))
    await until_begun(rig, [starting], "start_session")
    await until_begun(rig, [admitting], "admit_turn")
    queued = await enqueue(rig, "host-1", {}, 3)
    session = status((await until_phase(rig, [admitting], "Running", within=10))[admitting])["sessionId"]
    killed = rig.now()
    await rig.kill("host-1")
    every = [starting, admitting, *queued]
    await until_phase(rig, every, "Succeeded", within=90)
    history = await rig.collect()
    for name in every:
        heirs = [call for call in calls_of(history, name) if call.host != "host-1"]
        assert [call.step for call in heirs] == (
            ["admit_turn"] if name == admitting else ["start_session", "admit_turn"]
        )
        assert len({call.pid for call in heirs}) == 1, "two went on with one run"
        assert heirs[0].begun - killed <= TAKEN_OVER_WITHIN, (name, heirs[0].begun - killed)
        assert status(history.runs[name])["attempts"] == (1 if name in queued else 2)
    (turn,) = calls_of(history, admitting, "admit_turn", by=calls_of(history, admitting)[-1].host)
    assert turn.session_id == session == status(history.runs[admitting])["sessionId"]
    assert_holds(history)


@pytest.mark.xdist_group("both-cores")
async def test_runs_of_a_killed_host_are_continued_together(open_rig: OpenRig) -> None:
    """Two attempts, calls that last: the one heir makes all its calls 20 s after the kill at most."""
    rig = await open_rig(host_settings(MAX_ATTEMPTS=2))
    await rig.start_hosts(2)
    names = await enqueue(rig, "host-1", behaving(start_session="hang:15"), 40)
    await until_begun(rig, names, "start_session", within=12)
    killed = rig.now()
    await rig.kill("host-1")
    await until_phase(rig, names, "Succeeded", within=90)
    history = await rig.collect()
    for name in names:
        (first, *_) = calls_of(history, name, by="host-2")
        assert first.begun - killed <= TAKEN_OVER_WITHIN, (name, first.begun - killed)
        assert status(history.runs[name])["attempts"] == 2
    assert_holds(history)


@pytest.mark.xdist_group("both-cores")
@pytest.mark.timeout(290)
async def test_five_hosts_share_two_hundred_orphans(rig: Rig) -> None:
    """Each orphan is continued by exactly one, and under 5 % of the heirs' writes are refused."""
    await rig.start_host("host-6", env=host_settings(CONCURRENCY=20))
    names = await enqueue(rig, "host-6", behaving("host-6", start_session="hang:600"), ORPHANS)
    await rig.start_hosts(5)
    await until_begun(rig, names[:20], "start_session")
    killed = rig.now()
    await rig.kill("host-6")
    await until_phase(rig, names, "Succeeded", within=150)
    history = await rig.collect()
    lost = set()
    for name in names:
        mine = [call for call in steps(history, name) if call[0] != "host-6"]
        assert [step for _, step in mine] == ["start_session", "admit_turn"], (name, steps(history, name))
        assert len({host for host, _ in mine}) == 1, (name, mine)
        lost |= {name} if len(steps(history, name)) > 2 else set()
    assert len(lost) == 20
    heirs = Counter(calls_of(history, name)[-1].host for name in names)
    assert len(heirs) == 5, f"the orphans were not shared: {heirs}"
    writes = writes_to_runs(history, lambda by: by in heirs, after=killed)
    refused = [write for write in writes if write.code == 409]
    last = max(call.ended or call.begun for name in names for call in calls_of(history, name))
    say(f"{ORPHANS} orphans ended {last - killed:.1f} s after the kill, {dict(heirs)}")
    say(f"{len(refused)} of {len(writes)} writes refused")
    assert len(refused) < REFUSED_AT_MOST * len(writes), Counter(write.name for write in refused)
    assert ended_as(history, names) == {"Succeeded": ORPHANS}
    assert_holds(history, Slack(load=60.0))  # so many writes keep a small machine busy for so long


def say(text: str) -> None:
    """Shown with -s, and with a failure."""
    sys.stdout.write(f"{text}\n")
