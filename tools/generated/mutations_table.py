"""The table of mechanisms in docs/reliability.md, from the mutations that `make mutations` tries."""

from pathlib import Path

from tests.mutations.catalogue import ALL
from tests.mutations.mutation import Mutation, function_of
from tools.generated.marks import between_marks
from tools.generated.paths import ROOT

PAGE = ROOT / "docs" / "reliability.md"
_HEAD = "| taken out | fails |\n|---|---|\n"


def rendered() -> dict[Path, str]:
    """The page with the table that belongs into it. Raises ValueError when its place is gone."""
    return {PAGE: between_marks(PAGE, _HEAD + "".join(map(_row, ALL)))}


def _row(mutation: Mutation) -> str:
    names = dict.fromkeys(map(function_of, mutation.tests))
    return f"| {mutation.taken_out} | {', '.join(f'`{name}`' for name in names)} |\n"
