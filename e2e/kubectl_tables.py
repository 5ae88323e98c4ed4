"""What kubectl prints, read as a person reads it: rows below headings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_COLUMN: Final = re.compile(r"\S+(?: \S+)*")
"""A heading may have single blanks; two of them separate columns."""


def rows(text: str) -> dict[str, Mapping[str, str]]:
    """The rows of one table by the text in their first column; cells by heading, empty where there is none.

    Raises AssertionError if there is no table.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    assert lines, "kubectl has printed nothing"
    headings = [(match.group(), match.start()) for match in _COLUMN.finditer(lines[0])]
    ends = [start for _, start in headings[1:]] + [None]
    found: dict[str, Mapping[str, str]] = {}
    for line in lines[1:]:
        cells = {
            heading: line[start:end].strip() for (heading, start), end in zip(headings, ends, strict=True)
        }
        found[cells[headings[0][0]]] = cells
    return found
