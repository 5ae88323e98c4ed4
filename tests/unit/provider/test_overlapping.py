"""Commands for one schedule that overlap, in two replicas: what AstraBox wanted last is what is stored.

`one` is given the older command and carries it out at leisure; `two` is given the later one meanwhile.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest

from astrabox_scheduler_client.errors import ApiError
from astrabox_scheduler_crds.deletion import given_at, is_deleted
from astrabox_scheduler_crds.labels import GIVEN_AT_ANNOTATION
from astrabox_scheduler_kubernetes.rules import is_overtaken
from tests.unit.provider.memory_schedules import Memory, Replica, Time

Command = Callable[[Replica], Awaitable[None]]

COMMANDS: dict[str, Command] = {
    "edit": lambda replica: replica.apply(n=2),
    "disable": lambda replica: replica.apply(enabled=False),
    "delete": lambda replica: replica.delete(),
}
PAIRS = [(old, new) for old in COMMANDS for new in COMMANDS if old != new]


class Scene:
    """A schedule that is stored, two replicas, and the state that a command alone would leave."""

    def __init__(self, off: float = 0.0) -> None:
        self.memory, self.time = Memory(), Time()
        self.one, self.two = Replica(self.memory, self.time), Replica(self.memory, self.time, off)

    async def begin(self) -> None:
        await Replica(self.memory, self.time).apply(n=1)
        await self.time.pass_(60)

    def state(self) -> str:
        stored = self.memory.stored["d"]
        if is_deleted(stored):
            return "delete"
        return "edit" if stored.spec.enabled else "disable"

    async def later(self, command: Command, seconds: float = 0.1) -> None:
        await self.time.pass_(seconds)
        await command(self.two)
        await self.time.pass_(0.1)


@pytest.fixture
async def scene() -> Scene:
    scene = Scene()
    await scene.begin()
    return scene


@pytest.mark.parametrize(("older", "newer"), PAIRS)
async def test_a_conflict_does_not_bring_back_the_older_command(scene: Scene, older: str, newer: str) -> None:
    scene.one.line.acts = [lambda: scene.later(COMMANDS[newer])]
    await COMMANDS[older](scene.one)
    assert scene.state() == newer
    assert scene.one.line.writes == 1


@pytest.mark.parametrize("fate", ["lost", "lost and carried out"])
@pytest.mark.parametrize(("older", "newer"), PAIRS)
async def test_nor_does_a_repeat_after_an_answer_that_was_lost(
    scene: Scene, older: str, newer: str, fate: str
) -> None:
    scene.one.line.fates = [fate]  # type: ignore[list-item]
    scene.one.line.after = [lambda: scene.later(COMMANDS[newer])]
    await COMMANDS[older](scene.one)
    assert scene.state() == newer
    assert scene.one.line.writes == 1
    assert not len(scene.one.schedules._restorer)


@pytest.mark.parametrize("command", COMMANDS)
async def test_its_own_write_is_not_taken_for_anothers(scene: Scene, command: str) -> None:
    """Its answer is lost, and a status moves on the version: it is done."""

    async def status() -> None:
        scene.memory.status()

    scene.one.line.fates = ["lost and carried out"]
    scene.one.line.after = [status]
    await COMMANDS[command](scene.one)
    assert scene.state() == command
    assert scene.one.line.writes == 1


@pytest.mark.parametrize("newer", COMMANDS)
async def test_nor_a_create_that_found_nothing(newer: str) -> None:
    scene = Scene()
    scene.one.line.acts = [lambda: scene.later(COMMANDS[newer])]
    await scene.one.apply(n=1)
    assert scene.state() == newer
    assert scene.memory.spec.payload != '{"n":1}'


@pytest.mark.parametrize(("older", "newer"), PAIRS)
async def test_the_later_command_writes_over_the_older_one_that_came_in_between(
    scene: Scene, older: str, newer: str
) -> None:
    """The older one's write is carried out between the look and the write of `two`."""

    async def arrives() -> None:
        scene.one.line.arrive()
        assert scene.state() == older

    scene.one.line.fates = ["late"]
    scene.one.line.after = [lambda: scene.later(COMMANDS[newer])]
    scene.two.line.acts = [arrives]
    await COMMANDS[older](scene.one)
    assert scene.state() == newer
    assert scene.two.line.writes == 2


async def test_a_status_in_between_is_no_command(scene: Scene) -> None:
    async def status() -> None:
        scene.memory.status()

    scene.one.line.acts = [status]
    await scene.one.apply(enabled=False)
    assert scene.state() == "disable"


@pytest.mark.parametrize("mark", [None, "", "soon", "2026-06-01T12:00:00", "2099-01-01T00:00:00Z"])
async def test_what_was_written_by_hand_gives_way(scene: Scene, mark: str | None) -> None:
    """kubectl keeps the last command's mark, or has none, or any."""

    async def by_hand() -> None:
        old = scene.memory.stored["d"]
        annotations = dict(old.metadata.annotations)
        if mark is not None:
            annotations[GIVEN_AT_ANNOTATION] = mark
        metadata = old.metadata.changed(annotations=annotations)
        scene.memory.write("update", old.changed(metadata=metadata, spec=old.spec.changed(payload="[]")))

    scene.one.line.acts = [by_hand]
    await scene.one.apply(enabled=False)
    assert scene.state() == "disable"
    assert scene.memory.spec.payload == "{}"


@pytest.mark.parametrize("off", [-1.5, 1.5])
@pytest.mark.parametrize(("first", "then"), PAIRS)
async def test_clocks_that_differ_stop_no_command_that_comes_after_another(
    off: float, first: str, then: str
) -> None:
    """`two` writes and has returned before `one` is called; also if a status makes `one` look again."""
    scene = Scene(off)
    await scene.begin()
    await scene.later(COMMANDS[first])

    async def status() -> None:
        scene.memory.status()

    scene.one.line.acts = [status]
    await COMMANDS[then](scene.one)
    assert scene.state() == then


@pytest.mark.parametrize("older", COMMANDS)
async def test_a_look_that_hangs_is_overtaken(scene: Scene, older: str) -> None:
    """The first look already finds the later command: its clock must prove it, and does."""
    newer = next(each for each in COMMANDS if each != older)
    scene.one.line.looks = [lambda: scene.later(COMMANDS[newer], 3.0)]
    await COMMANDS[older](scene.one)
    assert scene.state() == newer
    assert scene.one.line.writes == 0


async def test_a_command_is_as_old_as_its_call_however_long_it_waits_for_another(scene: Scene) -> None:
    """The second call waits for the first one of its own replica, while the other replica disables."""
    waiting: list[asyncio.Task[None]] = []

    async def more() -> None:
        waiting.append(asyncio.create_task(scene.one.apply(n=3)))
        await asyncio.sleep(0)
        await scene.later(COMMANDS["disable"], 3.0)

    scene.one.line.acts = [more]
    await scene.one.apply(n=2)
    await waiting[0]
    assert scene.state() == "disable"


async def test_what_is_put_back_is_no_later_command(scene: Scene) -> None:
    """`two` fails and puts the old state back while a disable is under way in `one`: it was given since."""
    before = given_at(scene.memory.stored["d"].metadata)

    async def fails() -> None:
        scene.two.line.fates = ["lost and carried out"]
        scene.two.line.looks = [None, cut]
        with pytest.raises(ApiError):
            await scene.two.apply(n=2)
        scene.two.line.cut = False
        await scene.time.pass_(10)
        await scene.two.settled()
        assert scene.memory.spec.payload == '{"n":1}'
        assert given_at(scene.memory.stored["d"].metadata) == before

    async def cut() -> None:
        scene.two.line.cut = True

    scene.one.line.acts = [fails]
    await scene.one.apply(enabled=False)
    assert scene.state() == "disable"


async def test_a_straggling_write_is_kept_out_after_a_status(scene: Scene) -> None:
    """Two unanswered writes of a disable that failed rest on versions with a status in between."""
    line = scene.one.line

    async def status() -> None:
        scene.memory.status()

    async def cut() -> None:
        line.cut = True

    line.fates = ["late", "late"]
    line.after = [status]
    line.looks = [None, None, cut]
    with pytest.raises(ApiError):
        await scene.one.apply(enabled=False)
    assert len(line.late) == 2
    line.cut = False
    await scene.one.settled()
    line.arrive()
    assert scene.state() == "edit"
    assert scene.memory.spec.payload == '{"n":1}'


async def test_what_another_has_written_meanwhile_is_what_is_put_back(scene: Scene) -> None:
    """It comes between two writes of a command that then fails: it holds."""
    line = scene.one.line

    async def by_hand() -> None:
        old = scene.memory.stored["d"]
        scene.memory.write("update", old.changed(spec=old.spec.changed(payload="[]")))

    async def cut() -> None:
        line.cut = True

    line.fates = ["lost", "lost and carried out"]
    line.after = [by_hand]
    line.looks = [None, None, cut]
    with pytest.raises(ApiError):
        await scene.one.apply(enabled=False)
    assert scene.state() == "disable"
    line.cut = False
    await scene.one.settled()
    assert (scene.state(), scene.memory.spec.payload) == ("edit", "[]")


async def test_two_calls_in_doubt_put_back_what_neither_has_written(scene: Scene) -> None:
    """The second one finds what the first one has left, before that is put back."""
    line = scene.one.line

    async def cut() -> None:
        line.cut = True

    line.fates = ["lost and carried out", "lost and carried out"]
    line.looks = [None, cut]
    with pytest.raises(ApiError):
        await scene.one.apply(enabled=False)
    line.cut = False
    line.looks = [None, cut]
    with pytest.raises(ApiError):
        await scene.one.apply(n=3)
    assert scene.memory.spec.payload == '{"n":3}'
    line.cut = False
    await scene.one.settled()
    assert (scene.state(), scene.memory.spec.payload) == ("edit", '{"n":1}')


GIVEN = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("at", "first", "overtaken"),
    [
        (None, None, False),
        (-1.0, None, False),
        (0.0, None, False),
        (0.001, None, True),
        (0.001, -60.0, True),
        (1.9, 1.9, False),
        (2.1, 2.1, True),
        (1.9, 1.8, True),
        (11.9, None, True),
        (12.1, None, False),
    ],
)
def test_which_command_is_the_later_one(at: float | None, first: float | None, overtaken: bool) -> None:
    """In seconds after ours was given, ten seconds ago; clocks differ by two."""

    def mark(seconds: float | None) -> datetime | None:
        return None if seconds is None else GIVEN + timedelta(seconds=seconds)

    now = GIVEN + timedelta(seconds=10)
    assert is_overtaken(mark(at), mark(first), GIVEN, now, 2.0) is overtaken
