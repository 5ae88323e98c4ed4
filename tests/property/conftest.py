"""Hypothesis profiles: `fixed` runs the same examples each time, `deep` looks for new ones.

HYPOTHESIS_PROFILE=deep pytest tests/property
"""

import os

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "fixed",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=150,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("deep", settings.get_profile("fixed"), derandomize=False, max_examples=3_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"


@pytest.fixture(scope="session")
def deep() -> bool:
    """Whether the tests that walk all zones leave nothing out."""
    return DEEP


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if DEEP:
        for item in items:
            item.add_marker(pytest.mark.timeout(0))
