"""Control planes whose every write is noted, and a rig in one of them for each test."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import AsyncExitStack, ExitStack

import pytest

from tests.faults.stage.clock import ClockError
from tests.faults.stage.plane import Plane, borrowed_plane, ensure_programs, own_plane, planes_to_lend
from tests.faults.stage.rig import OpenRig, Rig
from tools.controlplane import ControlPlaneError

_LENT = 3
"""Control planes that all processes of the tests share. One for each of them would keep a core busy."""
_PLANES = "FAULT_PLANES"
_RUNNING = pytest.StashKey[ExitStack]()
_FAILED = pytest.StashKey[bool]()

os.environ.setdefault("SEED", str(random.SystemRandom().randrange(10**9)))  # workers inherit it


def pytest_report_header() -> str:
    """Say how this run is repeated."""
    return f"seed: SEED={os.environ['SEED']} make faults"


@pytest.hookimpl(tryfirst=True)  # before the names of groups are put to the tests' own
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest tests first, so that none of them begins when the others have ended.

    `--dist loadgroup` deals one to each worker, then a second, which waits behind the first: a short one.
    Those that need both cores are a group: one worker has them all, one after the other, from the beginning.
    """
    if not all(item.get_closest_marker("faults") for item in items):
        return
    grouped = [item for item in items if item.get_closest_marker("xdist_group")]
    others = [item for item in items if not item.get_closest_marker("xdist_group")]
    others.sort(key=_seconds, reverse=True)
    dealt = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) - bool(grouped)
    longest, others = others[:dealt], others[dealt:]
    shortest, others = others[len(others) - dealt :], others[: len(others) - dealt]
    items[:] = [*grouped, *longest, *shortest, *others]


def _seconds(item: pytest.Item) -> float:
    mark = item.get_closest_marker("waits")
    return 0.0 if mark is None else float(mark.args[0])


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build and look for what is needed before the first test starts its clock."""
    grouped = [item for item in session.items if item.get_closest_marker("xdist_group")]
    if session.config.getoption("loadgroup", default=False):
        lost = [item.nodeid for item in grouped if "@" not in item.nodeid]
        if lost:  # the tests that need both cores would run side by side, and be too late
            raise pytest.UsageError(f"pytest-xdist does not know the group of {lost[0]} with this pytest")
    wanted = any("plane" in getattr(item, "fixturenames", ()) for item in session.items)
    if session.config.option.collectonly or not wanted:
        return
    capture = session.config.pluginmanager.getplugin("capturemanager")
    try:
        with capture.global_and_fixture_disabled():
            ensure_programs()
    except (ControlPlaneError, ClockError) as error:
        raise pytest.UsageError(str(error)) from error


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config) -> None:
    """Start what the processes of the tests share, before there are any; they inherit where it is."""
    config.stash[_RUNNING] = ExitStack()
    os.environ[_PLANES] = config.stash[_RUNNING].enter_context(planes_to_lend(_LENT))


def pytest_unconfigure(config: pytest.Config) -> None:
    """End it when they are gone."""
    if running := config.stash.get(_RUNNING, None):
        running.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Let the fixtures know whether their test has failed."""
    report = yield
    if report.when == "call":
        item.stash[_FAILED] = report.failed
    return report


@pytest.fixture(scope="session")
def seed() -> int:
    """What every random choice of this run follows from."""
    return int(os.environ["SEED"])


@pytest.fixture(scope="session")
def borrowed(worker_id: str) -> Iterator[Plane | None]:
    """The control plane that this process of several shares with others."""
    if (text := os.environ.get(_PLANES)) is None:
        yield None
        return
    with borrowed_plane(text, int(worker_id.removeprefix("gw"))) as plane:
        yield plane


@pytest.fixture
def plane(request: pytest.FixtureRequest, borrowed: Plane | None) -> Iterator[Plane]:
    """A control plane with our resources; one of the test's own where it is marked so."""
    if borrowed is not None and request.node.get_closest_marker("own_plane") is None:
        yield borrowed
        return
    with own_plane() as plane:
        yield plane


@pytest.fixture
async def open_rig(plane: Plane, seed: int, request: pytest.FixtureRequest) -> AsyncIterator[OpenRig]:
    """Opens rigs with settings of the test's own: `rig = await open_rig({...})`."""
    async with AsyncExitStack() as stack:
        rigs: list[Rig] = []

        async def opened(settings: Mapping[str, str] | None = None) -> Rig:
            rigs.append(await stack.enter_async_context(Rig.open(plane, seed=seed, settings=settings)))
            return rigs[-1]

        yield opened
        if request.node.stash.get(_FAILED, False):
            for each in rigs:
                sys.stdout.write(f"{each.timeline(60, 25)}\n")


@pytest.fixture
async def rig(open_rig: OpenRig) -> Rig:
    """A rig with the settings as delivered."""
    return await open_rig()
