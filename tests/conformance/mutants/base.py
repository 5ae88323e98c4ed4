"""What a mutant declares."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import ClassVar

from astrabox.testing.memory_provider import MemorySchedulerProvider


def kills(**said: str) -> Mapping[str, str]:
    """Return what each killing test must say."""
    return MappingProxyType(said)


class Mutant(MemorySchedulerProvider):
    """A provider that breaks one thing; its docstring says which.

    ``killed_by`` maps the tests of the suite that must fail to a part of what they must say, so that
    a mutant is not taken for dead because of something else.
    """

    guarantee: ClassVar[str]
    killed_by: ClassVar[Mapping[str, str]]
    active_limit: ClassVar[int | None] = None
