"""Who is there now, and who was there at a due time."""

from datetime import UTC, datetime, timedelta

from astrabox_scheduler_crds.labels import DRAINING_LABEL, ROLE_LABEL
from astrabox_scheduler_crds.lease import Lease, LeaseSpec
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.presence import PresenceObserver

T0 = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def lease(name: str, acquired: float, renewed: float, version: str = "1", *, released: bool = False) -> Lease:
    meta = ObjectMeta(name=name, resource_version=version, labels={ROLE_LABEL: "provider"})
    holder = None if released else name
    spec = LeaseSpec(holder_identity=holder, acquire_time=at(acquired), renew_time=at(renewed))
    return Lease(metadata=meta, spec=spec)


def seen(*leases: Lease, monotonic: float = 100.0, now: float = 0) -> PresenceObserver:
    observer = PresenceObserver()
    observer.observe(leases, monotonic, at(now))
    return observer


def test_a_lease_is_live_for_its_duration_after_it_was_last_seen_to_change() -> None:
    observer = seen(lease("a", -60, 0))
    assert observer.presence("provider", 114.9).live == {"a"}
    assert observer.presence("provider", 115.0).live == frozenset()
    observer.observe([lease("a", -60, 5, "2")], 114.0, at(14))
    assert observer.presence("provider", 128.9).live == {"a"}


def test_seeing_it_again_without_a_change_does_not_prolong_it() -> None:
    observer = seen(lease("a", -60, 0))
    observer.observe([lease("a", -60, 0)], 110.0, at(10))
    assert observer.presence("provider", 115.0).live == frozenset()


def test_clocks_of_two_machines_are_not_compared() -> None:
    """RE-07: a host whose clock is 45 s behind stays live as long as it renews."""
    observer = seen(lease("a", -60, -45), monotonic=100, now=0)
    observer.observe([lease("a", -60, -40, "2")], 105.0, at(5))
    assert observer.presence("provider", 119.0).live == {"a"}


def test_a_lease_that_ran_out_long_ago_is_dead_at_first_sight() -> None:
    assert seen(lease("a", -7200, -3600)).presence("provider", 100.0).live == frozenset()


def test_it_lives_again_when_it_is_renewed() -> None:
    observer = seen(lease("a", -7200, -3600))
    observer.observe([lease("a", -7200, 1, "2")], 101.0, at(1))
    assert observer.presence("provider", 101.0).live == {"a"}


def test_a_released_lease_is_dead_at_once_and_still_says_when_it_was_there() -> None:
    presence = seen(lease("a", -60, -5, released=True)).presence("provider", 100.0)
    assert presence.live == frozenset()
    assert presence.covers(at(-5))
    assert not presence.covers(at(-4))


def test_proven_are_the_times_from_acquire_to_renew() -> None:
    presence = seen(lease("a", -60, 0)).presence("provider", 100.0)
    assert [presence.proves(at(each)) for each in (-61, -60, 0, 1)] == [False, True, True, False]


def test_covered_is_also_what_a_live_one_may_still_prove() -> None:
    presence = seen(lease("a", -60, 0)).presence("provider", 100.0)
    assert [presence.covers(at(each)) for each in (-61, -60, 3, 15, 16)] == [False, True, True, True, False]
    dead = seen(lease("a", -60, 0)).presence("provider", 116.0)
    assert [dead.covers(at(each)) for each in (0, 3)] == [True, False]


def test_a_host_killed_a_minute_ago_covers_no_later_time_though_it_was_just_seen_first() -> None:
    """All hosts were down over the due time and are back: nothing of it is made up for."""
    presence = seen(lease("a", -600, -32), now=35).presence("provider", 100.0)
    assert presence.live == {"a"}
    assert not presence.covers(at(0))


def test_a_process_that_stops_is_there_and_takes_nothing_more() -> None:
    stopping = lease("a", -60, 0)
    marked = stopping.metadata.changed(labels={**stopping.metadata.labels, DRAINING_LABEL: "true"})
    presence = seen(stopping.changed(metadata=marked), lease("b", -60, 0)).presence("provider", 100.0)
    assert presence.live == {"a", "b"}
    assert presence.assignable == {"b"}
    assert presence.covers(at(3))


def test_nobody_covers_nothing() -> None:
    assert not seen().presence("provider", 100.0).covers(at(0))


def test_roles_are_kept_apart() -> None:
    assert seen(lease("a", -60, 0)).presence("operator", 100.0).leases == ()
