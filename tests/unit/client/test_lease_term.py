from datetime import UTC, datetime, timedelta

import pytest

from astrabox_scheduler_client.lease_term import LeaseTerm, Renewal, jitter_of, seconds_to_next
from astrabox_scheduler_crds.lease import Lease
from astrabox_scheduler_crds.metadata import ObjectMeta

START = datetime(2026, 1, 31, 2, 30, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Process:
    """A term and the store that its Lease is written to, both at the same injected time."""

    def __init__(self) -> None:
        self.term = LeaseTerm("me", "provider", 15.0)
        self.versions = 0

    def begin(self, seconds: float) -> Renewal:
        return self.term.renewal(seconds, at(seconds))

    def stored(self, renewal: Renewal, begun: float, ended: float) -> bool:
        self.versions += 1
        metadata = ObjectMeta(name=renewal.lease.metadata.name, uid="u", resource_version=str(self.versions))
        return self.term.renewed(renewal, metadata, begun, ended)

    def renew(self, seconds: float, took: float = 0.0) -> Renewal:
        renewal = self.begin(seconds)
        self.stored(renewal, seconds, seconds + took)
        return renewal


def test_it_is_not_held_before_the_first_renewal_is_stored() -> None:
    process = Process()
    process.begin(0)
    assert (process.term.held(0), process.term.lapses(0)) == (False, 0)


def test_it_is_held_for_its_duration_from_the_renewals_begin() -> None:
    process = Process()
    process.renew(10, took=3)
    assert [process.term.held(t) for t in (13, 24.999, 25)] == [True, True, False]


def test_a_renewal_keeps_the_acquire_time_and_moves_the_renew_time() -> None:
    process = Process()
    process.renew(0.5)
    again = process.renew(5.5).lease
    assert (again.spec.acquire_time, again.spec.renew_time) == (at(0.5), at(5.5))
    assert again.metadata.resource_version == "1"
    assert again.spec.lease_duration_seconds == 15
    assert again.spec.holder_identity == "me"
    assert again.role == "provider"


def test_a_process_that_stops_says_so_and_stays_there() -> None:
    process = Process()
    assert not process.renew(0).lease.draining
    process.term.drain()
    renewed = process.renew(5).lease
    assert renewed.draining
    assert (renewed.role, renewed.released, process.term.held(6)) == ("provider", False, True)


def test_a_process_that_was_there_while_nothing_could_be_stored_has_no_gap() -> None:
    """The API server is away over a due time: the process was there, so the due time is to fire."""
    process = Process()
    process.renew(0.5)
    for tried in (5.5, 10.5, 15.5, 20.5, 25.5, 30.5):
        process.begin(tried)  # not stored
    assert (process.term.held(30.5), process.term.lapses(30.5)) == (False, 1)
    lease = process.renew(31.5).lease
    assert (lease.metadata.name, lease.metadata.resource_version) == ("me", "1")
    assert (lease.spec.acquire_time, lease.spec.renew_time) == (at(0.5), at(31.5))
    assert (process.term.held(31.5), process.term.lapses(31.5)) == (True, 1)
    assert process.term.take_ended() == []


def test_since_when_it_is_there_is_known_while_it_is_held() -> None:
    process = Process()
    assert process.term.acquired(0) is None
    process.renew(0.5)
    process.renew(5.5)
    assert process.term.acquired(6) == at(0.5)
    assert process.term.acquired(21) is None
    process.renew(100.5)
    assert process.term.acquired(101) == at(100.5)


def test_a_process_that_stood_still_goes_on_under_a_new_name_and_acquire_time() -> None:
    process = Process()
    process.renew(0.5)
    process.renew(5.5)
    lease = process.begin(100.5).lease
    assert (lease.metadata.name, lease.metadata.resource_version) == ("me-2", None)
    assert (lease.spec.acquire_time, lease.spec.renew_time) == (at(100.5), at(100.5))
    assert (process.term.name, process.term.lapses(100.5)) == ("me-2", 1)


def test_a_lapse_is_counted_once_whoever_notices_it() -> None:
    process = Process()
    process.renew(0)
    assert [process.term.lapses(t) for t in (14, 15, 100)] == [0, 1, 1]
    process.term.held(100)
    process.renew(100)
    assert (process.term.held(101), process.term.lapses(101)) == (True, 1)
    assert (process.term.held(200), process.term.lapses(200), process.term.name) == (False, 2, "me-2")


def test_a_lapse_that_nobody_asked_about_is_counted_by_the_renewal_after_it() -> None:
    process = Process()
    process.renew(0)
    process.renew(100)
    assert process.term.lapses(101) == 1


def test_a_stop_during_a_renewal_is_a_lapse_although_it_was_stored() -> None:
    process = Process()
    process.renew(0.5)
    renewal = process.begin(5.5)
    assert not process.stored(renewal, 5.5, 60)
    assert (process.term.held(60), process.term.lapses(60), process.term.name) == (False, 1, "me-2")
    # The old Lease holds the interval up to what was stored.
    assert [lease.metadata.resource_version for lease in process.term.take_ended()] == ["2"]


def test_a_first_renewal_that_took_longer_than_the_duration_is_a_lapse() -> None:
    process = Process()
    assert not process.stored(process.begin(0), 0, 15)
    assert (process.term.held(15), process.term.name) == (False, "me-2")


def test_ended_terms_are_given_out_once() -> None:
    process = Process()
    process.renew(0.5)
    process.renew(100.5)
    assert [(e.metadata.name, e.spec.renew_time) for e in process.term.take_ended()] == [("me", at(0.5))]
    assert process.term.take_ended() == []


def test_a_deleted_lease_comes_back_with_its_acquire_time() -> None:
    process = Process()
    process.renew(0.5)
    again = process.begin(5.5).recreated().lease
    assert again.metadata == ObjectMeta(name="me", labels=again.metadata.labels)
    assert again.role == "provider"
    assert (again.spec.acquire_time, again.spec.renew_time) == (at(0.5), at(5.5))


def test_a_conflict_is_written_on_top_of_what_is_there() -> None:
    process = Process()
    process.renew(0.5)
    found = ObjectMeta(name="me", uid="other", resource_version="77")
    assert process.begin(5.5).on_top_of(found).lease.metadata.resource_version == "77"


@pytest.mark.parametrize(
    ("holder", "renewed", "adopted"),
    [("me", 1.5, True), ("me", -10.0, False), ("you", 1.5, False), (None, 1.5, False)],
)
def test_a_lease_that_is_there_is_adopted_only_if_it_is_ours_and_has_not_run_out(
    holder: str | None, renewed: float, adopted: bool
) -> None:
    process = Process()
    renewal = process.begin(5.5)
    spec = renewal.lease.spec.changed(holder_identity=holder, acquire_time=at(-60), renew_time=at(renewed))
    found = Lease(metadata=ObjectMeta(name="me", uid="u", resource_version="9"), spec=spec)
    result = renewal.adopting(found)
    assert (result is not None) is adopted
    if result is not None:
        assert (result.lease.spec.acquire_time, result.lease.spec.renew_time) == (at(-60), at(5.5))
        assert result.lease.metadata.resource_version == "9"


def test_a_taken_name_is_left_and_is_no_lapse() -> None:
    process = Process()
    process.term.skip_name(process.begin(0))
    assert (process.term.name, process.term.lapses(0)) == ("me-2", 0)


def test_the_end_is_a_lease_without_a_holder_renewed_up_to_now() -> None:
    process = Process()
    process.renew(0.5)
    last = process.term.end(7.5, at(7.5))
    assert last is not None
    assert (last.released, last.spec.acquire_time, last.spec.renew_time) == (True, at(0.5), at(7.5))
    assert not process.term.held(7.5)


def test_an_end_after_a_lapse_does_not_stretch_the_interval() -> None:
    process = Process()
    process.renew(0.5)
    assert process.term.end(100, at(100)) is None
    assert [e.spec.renew_time for e in process.term.take_ended()] == [at(0.5)]


def test_times_have_six_digits_behind_the_point_because_the_api_server_asks_for_them() -> None:
    process = Process()
    process.renew(0)
    assert process.begin(5).lease.to_dict()["spec"]["renewTime"].endswith(":05.000000Z")
    last = process.term.end(6, at(6))
    assert last is not None
    assert last.to_dict()["spec"]["renewTime"].endswith(":06.000000Z")


@pytest.mark.parametrize("identity", ["", "A", "-a", "a-", "a.b", "x" * 57, "a b"])
def test_an_identity_that_cannot_name_a_lease_or_be_a_label_is_refused(identity: str) -> None:
    with pytest.raises(ValueError, match="DNS label"):
        LeaseTerm(identity, "provider", 15)


def test_renewals_are_on_whole_multiples_of_the_period() -> None:
    minute = START.timestamp()
    assert seconds_to_next(minute - 3, 5, 0.1) == pytest.approx(3.1)
    assert seconds_to_next(minute + 0.1, 5, 0.1) == pytest.approx(5)
    for step in range(1000):
        pause = seconds_to_next(minute + step * 0.0137, 5, 0.1)
        assert 0 < pause <= 5
        assert (minute + step * 0.0137 + pause - 0.1) % 5 == pytest.approx(0, abs=1e-5)


def test_the_jitter_is_fixed_for_an_identity_and_differs_between_them() -> None:
    values = [jitter_of(f"p-{n}") for n in range(100)]
    assert values == [jitter_of(f"p-{n}") for n in range(100)]
    assert len(set(values)) == 100
    assert all(0 <= value <= 0.2 for value in values)
