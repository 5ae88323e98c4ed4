"""Names over arbitrary deployment ids: injective, valid, readable back."""

import re
from datetime import UTC, datetime

from hypothesis import assume, example, given
from hypothesis import strategies as st

from astrabox_scheduler_crds.names import (
    deployment_key,
    parse_scheduled_run_name,
    requested_run_name,
    scheduled_run_name,
)

IDS = st.one_of(
    st.text(max_size=300),
    st.from_regex(r"[a-z0-9-]{1,45}", fullmatch=True),
    st.from_regex(r"[A-Za-z0-9._-]{1,45}", fullmatch=True),
    # Ids that look like our own names.
    st.text(max_size=60).map(deployment_key),
    st.from_regex(r"[a-z]{1,4}-[0-9]{8}t[0-9]{4}z", fullmatch=True),
)
MINUTES = st.integers(min_value=0, max_value=4_000_000_000 // 60).map(
    lambda minute: datetime.fromtimestamp(60 * minute, UTC)
)
NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@given(IDS, IDS)
@example("Ab", "ab")
@example("a.b", "a-b")
def test_two_ids_never_share_a_key(left: str, right: str) -> None:
    assume(left != right)
    assert deployment_key(left) != deployment_key(right)


@given(IDS)
def test_a_key_is_a_name_and_a_label(deployment_id: str) -> None:
    key = deployment_key(deployment_id)
    assert len(key) <= 40
    assert NAME.fullmatch(key)


@given(IDS, MINUTES)
def test_a_scheduled_name_tells_its_key_and_due_time(deployment_id: str, due: datetime) -> None:
    """So it is injective in both."""
    key = deployment_key(deployment_id)
    name = scheduled_run_name(key, due)
    assert parse_scheduled_run_name(name) == (key, due)
    assert NAME.fullmatch(name)
    assert len(name) <= 63


@given(IDS, MINUTES, st.from_regex(r"[a-z2-7]{8}", fullmatch=True))
def test_a_requested_run_never_takes_a_due_time(deployment_id: str, now: datetime, token: str) -> None:
    name = requested_run_name(deployment_key(deployment_id), now, token)
    assert parse_scheduled_run_name(name) is None
    assert NAME.fullmatch(name)
