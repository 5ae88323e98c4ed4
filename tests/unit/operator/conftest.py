import pytest

from tests.unit.operator.world import World, at


@pytest.fixture
def world() -> World:
    """An API server at 12:00:30 with one AstraBox process since the morning."""
    world = World()
    world.provider("astrabox-1", at("06:00"))
    return world
