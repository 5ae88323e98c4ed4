"""Pods that go while due times come every minute: every due time has one run, none is lost, none doubled."""

from __future__ import annotations

import pytest

from astrabox_scheduler_crds.labels import ROLE_LABEL
from e2e.minutely import Minutely, start_minutely
from e2e.release import Release
from e2e.waiting import before_next_minute

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

OPERATORS = ("-l", "app.kubernetes.io/component=operator")
LATE_SECONDS = 60.0
"""A Lease of 15 s runs out, and a pod starts meanwhile: 20 s on two idle cores."""


@pytest.fixture(scope="module")
def minutely(release: Release) -> Minutely:
    return start_minutely(release)


def test_operators_that_are_killed_at_a_due_time_lose_nothing(release: Release, minutely: Minutely) -> None:
    leases = release.objects("leases", "-l", f"{ROLE_LABEL}=operator")
    due = before_next_minute(8.0)
    release.kubectl("delete", "pod", *OPERATORS, "--force", "--grace-period=0")
    release.rolled_out(release.operator)
    minutely.check(due)
    killed = {each["metadata"]["name"] for each in leases}
    assert minutely.creators(due).isdisjoint(killed), "the test needs them to be gone at the due time"
    assert minutely.lateness() < LATE_SECONDS


def test_rolling_everything_at_a_due_time_loses_nothing(release: Release, minutely: Minutely) -> None:
    due = before_next_minute(3.0)
    names = (release.operator, "astrabox")
    release.kubectl("rollout", "restart", *(f"deployment/{name}" for name in names))
    release.rolled_out(*names)
    minutely.check(due)
