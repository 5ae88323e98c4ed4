"""Pods that go while due times come every minute: every due time has one run, none is lost, none doubled."""

from __future__ import annotations

import json

import pytest

from astrabox_scheduler_crds.labels import ROLE_LABEL
from e2e.hosts import is_serving
from e2e.minutely import Minutely, start_minutely
from e2e.release import Release
from e2e.waiting import before_next_minute, until
from tools.controlplane import KubectlError

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

OPERATORS = ("-l", "app.kubernetes.io/component=operator")
KILLED_SECONDS = 60.0
"""How late a due time may be: a Lease of 15 s runs out while a pod starts; 20 s on two idle cores."""
STOPPED_SECONDS = 14.0
"""The same when operators are asked to end. They give their Leases back, which others see within 2 s, and
look at due times that were not theirs every 5 s: 7 s on idle cores. A Lease that only runs out costs 10 more.
"""


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
    assert minutely.lateness(due) < KILLED_SECONDS


def test_rolling_everything_at_a_due_time_loses_nothing(release: Release, minutely: Minutely) -> None:
    due = before_next_minute(8.0)  # until a new pod is Ready, and an old one is asked to end
    names = (release.operator, "astrabox")
    release.kubectl("rollout", "restart", *(f"deployment/{name}" for name in names))
    release.rolled_out(*names)
    minutely.check(due)
    assert minutely.lateness(due) < STOPPED_SECONDS


def test_a_drain_takes_one_operator_at_a_time(release: Release, minutely: Minutely) -> None:
    """Evicted as `kubectl drain` does it, the first when a due time comes."""
    first, second = sorted(ready_operators(release))
    due = before_next_minute(1.0)
    evict(release, first)
    with pytest.raises(KubectlError, match=r"\(TooManyRequests\).* disruption budget"):
        evict(release, second)

    def evicted() -> set[str]:
        """Who is Ready when the second may go."""
        ready = ready_operators(release)
        try:
            evict(release, second)
        except KubectlError as error:
            if "(TooManyRequests)" not in error.stderr:
                raise
            return set()
        return ready | ready_operators(release)

    ready = until(evicted, 90, "the second operator may be evicted")
    assert ready - {first, second}, "another has taken the place of the first before"
    release.rolled_out(release.operator)
    assert not ready_operators(release) & {first, second}
    minutely.check(due)
    assert minutely.lateness(due) < STOPPED_SECONDS


def ready_operators(release: Release) -> set[str]:
    """Names of the pods that are Ready and not about to end."""
    return {pod["metadata"]["name"] for pod in release.objects("pods", *OPERATORS) if is_serving(pod)}


def evict(release: Release, pod: str) -> None:
    """KubectlError if the API server refuses it."""
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}}
    path = f"/api/v1/namespaces/{release.namespace}/pods/{pod}/eviction"
    release.kubectl("create", "--raw", path, "-f", "-", input=json.dumps(body))
