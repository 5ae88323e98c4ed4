"""What it takes to show that a mechanism is needed: how it is taken out, and what fails then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

PACKAGE_FOLDERS: Final = ("crds", "client", "provider", "operator", "contract")
"""Folders of the tree that Python's path holds, with the packages in them."""

CRDS: Final = "crds/astrabox_scheduler_crds"
CLIENT: Final = "client/astrabox_scheduler_client"
PROVIDER: Final = "provider/astrabox_scheduler_kubernetes"
OPERATOR: Final = "operator/astrabox_scheduler_operator"
_FAULTS: Final = "tests/faults/"

Edit = tuple[str, str, str]
"""A file, a text that occurs once in it, and the text in its place."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One mechanism. `taken_out` is the table's text, `tests` are node ids of pytest; each must fail."""

    name: str
    taken_out: str
    edits: tuple[Edit, ...]
    tests: tuple[str, ...]

    def quick(self) -> Mutation:
        """The same with the tests that end no processes; it may have none."""
        tests = tuple(each for each in self.tests if not each.startswith(_FAULTS))
        return Mutation(self.name, self.taken_out, self.edits, tests)

    def modules(self) -> list[str]:
        """The importable names of what is edited."""
        files = dict.fromkeys(PurePosixPath(file) for file, _, _ in self.edits)
        return [".".join(file.with_suffix("").parts[1:]) for file in files if file.suffix == ".py"]


def function_of(test: str) -> str:
    """The name of the test function, without file and parameters."""
    return test.rpartition("::")[2].partition("[")[0]


def edited(text: str, old: str, new: str) -> str:
    """The text with the edit made. Raises ValueError unless `old` is in it once."""
    if (count := text.count(old)) != 1:
        raise ValueError(f"it occurs {count} times, not once: {old!r}")
    return text.replace(old, new)
