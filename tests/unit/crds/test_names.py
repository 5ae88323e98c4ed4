"""Names carry the once-only guarantee: pure, injective, valid for Kubernetes."""

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from astrabox_scheduler_crds.names import (
    deployment_key,
    is_object_name,
    parse_scheduled_run_name,
    requested_run_name,
    scheduled_run_name,
)

DUE = datetime(2026, 10, 25, 0, 0, tzinfo=UTC)
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LABEL_VALUE = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")

ODD_IDS = [
    "", "a" * 41, "a" * 63, "a" * 253, "Upper", "UPPER", "with.dot", "under_score", "-dash", "dash-", "a b",
    "日报", "a/b", "a\0b", "\ud800", ".", "..", "x" * 5000, "٣", "ﬁ",
]  # fmt: skip


@pytest.mark.parametrize("deployment_id", ["a", "0", "nightly-report", "0123456789abcdef" * 2, "a" * 40])
def test_a_dns_label_is_its_own_key(deployment_id: str) -> None:
    assert deployment_key(deployment_id) == deployment_id


@pytest.mark.parametrize("deployment_id", ODD_IDS)
def test_any_other_id_becomes_a_valid_name_that_no_dns_label_can_be(deployment_id: str) -> None:
    """AL-01: 63 and 253 characters, upper case, dots, underscores, anything."""
    key = deployment_key(deployment_id)
    assert "." in key
    assert len(key) <= 40
    for text in (key, scheduled_run_name(key, DUE)):
        assert SUBDOMAIN.fullmatch(text)
        assert LABEL_VALUE.fullmatch(text)
        assert len(text) <= 63


def test_crafted_ids_do_not_meet() -> None:
    ids = [*ODD_IDS, *(deployment_key(each) for each in ODD_IDS), "upper-x", "a-b", "A-B", "a_b"]
    keys = {each: deployment_key(each) for each in ids}
    assert len(set(keys.values())) == len(set(ids))


def test_the_key_of_a_key_is_another_one() -> None:
    """An id that is written like a digest key must not take that key's place."""
    key = deployment_key("Some Id")
    assert deployment_key(key) != key


def test_a_scheduled_name_is_the_utc_due_time() -> None:
    assert scheduled_run_name("nightly", DUE) == "nightly-20261025t0000z"
    berlin = timezone(timedelta(hours=2))
    assert scheduled_run_name("nightly", DUE.astimezone(berlin)) == "nightly-20261025t0000z"


@pytest.mark.parametrize("due", [DUE.replace(second=1), DUE.replace(microsecond=1), DUE.replace(tzinfo=None)])
def test_a_time_that_its_name_could_not_tell_is_refused(due: datetime) -> None:
    with pytest.raises(ValueError, match="whole minute"):
        scheduled_run_name("nightly", due)


def test_a_scheduled_name_reads_back() -> None:
    assert parse_scheduled_run_name("a-20260101t0000z-20260102t0304z") == (
        "a-20260101t0000z",
        datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    )
    assert parse_scheduled_run_name("a-20260132t0000z") is None
    assert parse_scheduled_run_name("a") is None


def test_requested_names_sort_by_time_and_are_never_scheduled_ones() -> None:
    times = [DUE + timedelta(milliseconds=step) for step in (0, 1, 999, 1000, 61_000)]
    names = [requested_run_name("k", now, "abcdefgh") for now in times]
    assert names == sorted(names)
    assert len(set(names)) == len(names)
    assert all(parse_scheduled_run_name(name) is None for name in names)
    assert parse_scheduled_run_name(requested_run_name("k-20260101t0000z", DUE, "t2222222")) is None


@pytest.mark.parametrize(
    ("text", "is_name"),
    [("a", True), ("a.b-c.0", True), ("x" * 253, True), ("x" * 254, False), ("", False), ("..", False),
     ("a/b", False), ("../x", False), ("a%2fb", False), ("A", False), ("a b", False), ("a\n", False),
     ("é", False)],
)  # fmt: skip
def test_what_can_be_the_name_of_an_object(text: str, is_name: bool) -> None:
    assert is_object_name(text) is is_name


@pytest.mark.parametrize("token", ["", "short", "ABCDEFGH", "abcdefg8", "a-b-c-d-"])
def test_a_token_has_its_shape(token: str) -> None:
    with pytest.raises(ValueError, match="8 characters"):
        requested_run_name("k", DUE, token)
