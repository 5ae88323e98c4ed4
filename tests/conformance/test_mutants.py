"""The suite rejects every provider that breaks a guarantee, and says why."""

import asyncio
import re
import unittest

import pytest

from astrabox.testing.memory_provider import MemoryDeployment, MemorySchedulerProvider
from astrabox.testing.scheduler_conformance import SchedulerProviderContractSuite
from tests.conformance.memory_binding import MemoryBinding
from tests.conformance.mutants import dispatch, due_times, recovery, runs, service
from tests.conformance.mutants.base import Mutant

MUTANTS = [
    value
    for module in (due_times, dispatch, recovery, runs, service)
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Mutant) and "killed_by" in vars(value)
]
CASES = [(mutant, test) for mutant in MUTANTS for test in mutant.killed_by]
SUITE_TESTS = [name for name in dir(SchedulerProviderContractSuite) if name.startswith("test_")]


class Bound(MemoryBinding, SchedulerProviderContractSuite):
    settle_timeout = 0.6
    stop_timeout = 0.6


def run_suite_test(provider: type[MemorySchedulerProvider], test: str, limit: int | None) -> None:
    bound = type("Bound", (Bound,), {"provider_class": provider, "max_active_schedules": limit})()

    async def case() -> None:
        await getattr(bound, test)(MemoryDeployment())

    asyncio.run(case())


@pytest.mark.parametrize(
    ("mutant", "test"), CASES, ids=[f"{m.guarantee}-{m.__name__}-{test}" for m, test in CASES]
)
def test_mutant_is_killed(mutant: type[Mutant], test: str) -> None:
    with pytest.raises(AssertionError, match=re.escape(mutant.killed_by[test])):
        run_suite_test(mutant, test, mutant.active_limit)
    print(f"{mutant.guarantee} {mutant.__name__}: killed by {test} ({mutant.killed_by[test]!r})")  # noqa: T201 - pytest -rP


@pytest.mark.parametrize("test", sorted({test for _, test in CASES}))
def test_unbroken_provider_passes_the_killing_tests(test: str) -> None:
    limit = 2 if test == "test_capacity_is_kept" else None
    try:
        run_suite_test(MemorySchedulerProvider, test, limit)
    except unittest.SkipTest as skipped:
        pytest.fail(f"{test} did not run: {skipped}")


def test_every_guarantee_has_mutants() -> None:
    assert {mutant.guarantee for mutant in MUTANTS} == {f"G{number}" for number in range(1, 11)}


def test_every_suite_test_kills_a_mutant() -> None:
    assert set(SUITE_TESTS) == {test for _, test in CASES}


def test_every_mutant_says_what_it_breaks() -> None:
    assert all((mutant.__doc__ or "").endswith(".") and mutant.killed_by for mutant in MUTANTS)
