"""reconcile on a real API server: what it writes, spares and refuses."""

import logging
from dataclasses import replace
from datetime import timedelta

import pytest

from astrabox.seams.scheduler import InvalidSchedule, ScheduleCapacityExceeded
from astrabox_scheduler_crds.metadata import utc_text
from tests.apiserver.provider.handlers import rule
from tests.apiserver.provider.scenery import QUICK, Place, true, until
from tests.apiserver.provider.stored import by_hand, names, stored


async def test_reconcile_writes_only_what_differs(place: Place) -> None:
    provider = place.provider()
    rules = [rule(f"d{n}") for n in range(20)]
    await provider.reconcile(rules)
    before = {each.metadata.name: each.metadata for each in (await place.api.schedules.list()).items}
    await provider.reconcile([*rules[:-1], rule("d19", payload={"new": 1})])
    after = {each.metadata.name: each.metadata for each in (await place.api.schedules.list()).items}
    changed = [name for name in before if before[name] != after[name]]
    assert changed == ["d19"]


async def test_reconcile_names_what_it_removes(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A database that is another than is meant has none of them: that is a warning. A tombstone is none."""
    caplog.set_level(logging.INFO)

    def told() -> tuple[str, str]:
        (found,) = [each for each in caplog.records if each.getMessage().startswith("AstraBox has ")]
        caplog.clear()
        return found.levelname, found.getMessage()

    provider = place.provider(replace(QUICK, recently=0.0))
    await provider.reconcile([rule(f"d{n:02}") for n in range(12)])
    assert told() == ("INFO", "AstraBox has 12 schedules: 12 written, 0 unchanged")
    await provider.reconcile(
        [rule("d00"), rule("d01", payload={"new": 1}), *(rule(f"e{n}") for n in range(2))]
    )
    gone = ", ".join(f"'d{n:02}'" for n in range(2, 12))
    removed = f"10 removed that it does not have ({gone})"
    assert told() == ("WARNING", f"AstraBox has 4 schedules: 3 written, 1 unchanged, {removed}")
    await provider.delete("e0")
    await provider.delete("e1")
    place.clock.advance(3600)
    await provider.reconcile([rule("d00")])
    assert await names(place) == ["d00"], "the tombstones are gone as well"
    removed = "1 removed that it does not have ('d01')"
    assert told() == ("WARNING", f"AstraBox has 1 schedule: 0 written, 1 unchanged, {removed}")
    with pytest.raises(InvalidSchedule):
        await provider.reconcile([rule("d00"), rule("bad", cron="@daily")])
    assert told() == ("INFO", "AstraBox has 2 schedules: 0 written, 1 unchanged, 1 not as they should be")
    await provider.reconcile([rule(f"f{n:02}") for n in range(12)])
    caplog.clear()
    await provider.reconcile([])
    level, text = told()
    assert level == "WARNING"
    assert text.endswith("'f09', and 2 more)")


async def test_reconcile_spares_what_another_replica_applied_a_moment_ago(place: Place) -> None:
    """Its snapshot may be older: it neither overwrites nor removes; afterwards it does both."""
    one, two = place.provider(replace(QUICK, recently=60.0)), place.provider(replace(QUICK, recently=0.0))
    await two.apply(rule("new"))
    await two.apply(rule("edited", payload={"new": 1}))
    await one.reconcile([rule("edited", payload={"old": 1}), rule("other")])
    assert await names(place) == ["edited", "new", "other"]
    assert (await stored(place, "edited")).spec.payload == '{"new":1}'
    await two.reconcile([rule("edited", payload={"old": 1})])
    assert await names(place) == ["edited"]
    assert (await stored(place, "edited")).spec.payload == '{"old":1}'
    await one.stop()


async def test_reconcile_does_not_spare_what_was_applied_before_its_process(place: Place) -> None:
    """After a quick restart the snapshot is the newer one, whatever the process before has applied."""
    before = place.provider(replace(QUICK, recently=60.0))
    await before.apply(rule("new"))
    await before.apply(rule("edited", payload={"new": 1}))
    after = place.provider(replace(QUICK, recently=60.0))
    await after.reconcile([rule("edited", payload={"old": 1})])
    assert await names(place) == ["edited"]
    assert (await stored(place, "edited")).spec.payload == '{"old":1}'


async def test_clocks_that_differ_a_little_are_allowed_for(place: Place) -> None:
    """A mark that seems a moment older than our process may be younger."""
    before = place.provider()
    await before.apply(rule("new"))
    after = place.provider(replace(QUICK, recently=60.0, clocks=30.0))
    await after.reconcile([])
    assert await names(place) == ["new"]
    await after.stop()


async def test_what_reconcile_spared_is_looked_at_again(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """Of what is still there as it was and differs the Deployment is named, of nothing else."""
    one, two = place.provider(replace(QUICK, recently=1.0)), place.provider()
    for name in ("removed", "edited", "same", "again", "gone"):
        await two.apply(rule(name, payload={"new": 1}))
    await one.reconcile(
        [rule("edited", payload={"old": 1}), rule("same", payload={"new": 1}), rule("again"), rule("gone")]
    )
    second_look = one._engine()._second_look
    await two.apply(rule("again", payload={"newer": 1}))
    await two.delete("gone")
    await until(lambda: true(second_look._task is None or second_look._task.done()))
    told = [each.getMessage() for each in caplog.records if "had listed then" in each.getMessage()]
    assert sorted(each.split("'")[1] for each in told) == ["edited", "removed"]
    assert await names(place) == ["again", "edited", "removed", "same"]
    await one.stop()


async def test_mark_from_the_far_future_does_not_protect_for_ever(place: Place) -> None:
    provider = place.provider()
    await by_hand(place, applied=utc_text(place.clock.now() + timedelta(days=400)))
    await by_hand(place, "other", applied="not a time")
    await provider.reconcile([])
    assert await names(place) == []


async def test_reconcile_deals_with_all_before_it_complains(place: Place) -> None:
    """Schedules that are refused hold up no other, and keep what is stored of them."""
    provider = place.provider()
    await by_hand(place, "kept", cron="0 0 * * *")
    with pytest.raises(InvalidSchedule) as caught:
        await provider.reconcile(
            [
                rule("bad", cron="never"),
                rule("kept", payload={"p": (1,)}),
                rule("good"),
                rule("bad2", timezone="No"),
            ]
        )
    assert await names(place) == ["good", "kept"]
    for each in ("bad", "bad2", "kept"):
        assert each in str(caught.value)
    assert "good" not in str(caught.value)


async def test_reconcile_keeps_the_limit(place: Place) -> None:
    """Those that are enabled already have precedence; disabled ones do not count."""
    provider = place.provider(MAX_ACTIVE_SCHEDULES="2")
    await provider.reconcile([rule("a"), rule("off", enabled=False)])
    with pytest.raises(ScheduleCapacityExceeded, match="c"):
        await provider.reconcile([rule("c0"), rule("c1"), rule("a"), rule("off", enabled=False)])
    assert await names(place) == ["a", "c0", "off"]
