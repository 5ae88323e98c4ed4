"""Commands for one schedule that overlap, by two providers on a real API server.

`one` is given the older command and carries it out at leisure; `two` is given the later one meanwhile.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from astrabox.seams.scheduler import SchedulerUnavailable
from astrabox_scheduler_crds.deletion import is_deleted
from astrabox_scheduler_crds.labels import GIVEN_AT_ANNOTATION
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider
from tests.apiserver.provider.handlers import rule
from tests.apiserver.provider.meanwhile import before, lost
from tests.apiserver.provider.scenery import QUICK, Place, true, until
from tests.apiserver.provider.stored import by_hand, stored

Command = Callable[[KubernetesSchedulerProvider], Awaitable[None]]

COMMANDS: dict[str, Command] = {
    "edit": lambda provider: provider.apply(rule(payload={"edited": 1})),
    "disable": lambda provider: provider.apply(rule(enabled=False)),
    "delete": lambda provider: provider.delete("d"),
}
PAIRS = [(old, new) for old in COMMANDS for new in COMMANDS if old != new]


async def state(place: Place) -> str:
    """Which command's state is stored."""
    found = await stored(place)
    if is_deleted(found):
        return "delete"
    return "edit" if found.spec.enabled else "disable"


@pytest.mark.parametrize(("older", "newer"), PAIRS)
async def test_a_conflict_does_not_bring_back_the_older_command(place: Place, older: str, newer: str) -> None:
    """G5: whoever disabled or deleted has been told that it is done."""
    one, two = place.provider(), place.provider()
    await two.apply(rule())
    sent = before(one, "update", lambda: COMMANDS[newer](two))
    await COMMANDS[older](one)
    assert await state(place) == newer
    assert sent == ["update"], "one conflict, and then nothing more"


@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize(("older", "newer"), PAIRS)
async def test_nor_does_a_repeat_after_an_answer_that_was_lost(
    place: Place, older: str, newer: str, carried_out: bool
) -> None:
    one, two = place.provider(), place.provider()
    await two.apply(rule())
    sent = lost(one, "update", lambda: COMMANDS[newer](two), carried_out=carried_out)
    await COMMANDS[older](one)
    assert await state(place) == newer
    assert sent == ["update"]
    assert not len(one._engine()._schedules._restorer)


@pytest.mark.parametrize("newer", COMMANDS)
async def test_nor_does_a_create(place: Place, newer: str) -> None:
    """There was nothing when it looked; the later command's object, or its tombstone, has taken the name."""
    one, two = place.provider(), place.provider()
    sent = before(one, "create", lambda: COMMANDS[newer](two))
    await one.apply(rule(payload={"older": 1}))
    assert await state(place) == newer
    assert (await stored(place)).spec.payload != '{"older":1}'
    assert sent == ["create"]


async def test_the_later_command_writes_over_the_older_one(place: Place) -> None:
    """The older one's write comes between its look and its write."""
    one, two = place.provider(), place.provider()
    await two.apply(rule())
    overtaking: list[list[str]] = []

    async def disable() -> None:
        overtaking.append(before(two, "update", lambda: by_one(place)))
        await two.apply(rule(enabled=False))

    async def by_one(place: Place) -> None:
        found = await stored(place)
        marks = {**found.metadata.annotations, GIVEN_AT_ANNOTATION: given[0]}
        metadata = found.metadata.changed(annotations=marks)
        spec = found.spec.changed(payload='{"edited":1}')
        await place.api.schedules.update(found.changed(metadata=metadata, spec=spec))

    given = [place.clock.now().isoformat()]
    before(one, "update", disable)
    await COMMANDS["edit"](one)
    assert await state(place) == "disable"
    assert overtaking == [["update", "update"]]


async def test_an_edit_by_hand_gives_way(place: Place) -> None:
    """It bears the mark of the command before it, or none: what AstraBox wants is written."""
    one = place.provider()
    await one.apply(rule())

    async def edit() -> None:
        found = await stored(place)
        await place.api.schedules.update(found.changed(spec=found.spec.changed(payload='{"by":"hand"}')))

    before(one, "update", edit)
    await one.apply(rule(enabled=False))
    assert (await stored(place)).spec.enabled is False
    await place.api.schedules.delete("d")
    before(two := place.provider(), "create", lambda: by_hand(place))
    await two.apply(rule(enabled=False))
    assert (await stored(place)).spec.enabled is False


async def test_what_is_put_back_stops_no_command_that_is_under_way(place: Place) -> None:
    """`two` fails, and has put the old state back before the disable of `one` is written."""
    one, two = place.provider(), place.provider(replace(QUICK, settle=0.3))
    await one.apply(rule(payload={"old": 1}))

    async def shut() -> None:
        place.door.shut()

    async def fails() -> None:
        lost(two, "update", shut, carried_out=True)
        with pytest.raises(SchedulerUnavailable):
            await two.apply(rule(payload={"lost": 1}))
        place.door.open()
        await until(lambda: true(not len(two._engine()._schedules._restorer)))
        assert (await stored(place)).spec.payload == '{"old":1}'

    before(one, "update", fails)
    await one.apply(rule(enabled=False))
    assert (await stored(place)).spec.enabled is False
    await two.stop()
