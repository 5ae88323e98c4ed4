"""What kubectl prints, read as a person reads it: rows below headings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_COLUMN: Final = re.compile(r"\S+(?: \S+)*")
"""A heading may have single blanks; two of them separate columns."""


def tables(text: str) -> list[str]:
    """The tables of what several commands have printed one after the other; each begins with NAME."""
    found: list[list[str]] = []
    for line in filter(str.strip, text.splitlines()):
        if line.split()[0] == "NAME":
            found.append([])
        if found:
            found[-1].append(line)
    return ["\n".join(lines) for lines in found]


def heading_line(table: str) -> str:
    """The first line of a table."""
    return table.partition("\n")[0]


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
