"""Reads docs/install.md: its commands in their order, and what it says that they print.

Each fence has a mark in the line before it: `<!-- block: NAME -->` for commands (bash), and
`<!-- sample: NAME -->` for what the block of that name prints (text). Blocks named `set-...` hold the names
that a reader sets to their own, one `export NAME=value` a line, and nothing else does. What the text between
them names of kubectl and helm has its namespace, so that a reader can copy it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from tools.generated.paths import ROOT

PAGE: Final = ROOT / "docs" / "install.md"
_MARK: Final = re.compile(r"<!-- (?P<kind>block|sample): (?P<name>[a-z0-9-]+) -->")
_FENCE: Final = re.compile(r"```(?P<language>\w*)")
_EXPORT: Final = re.compile(r"export (?P<name>[A-Z_]+)=(?P<value>\S+)(?:\s+#.*)?")
_INLINE: Final = re.compile(r"`((?:kubectl|helm) [^`]+)`")
_SPACE: Final = re.compile(r" (?:-n|--namespace)[ =]")
_LANGUAGES: Final = {"block": "bash", "sample": "text"}


class PageError(ValueError):
    """The page is not as the suite can run it; the text names the line and says what to write."""


@dataclass(frozen=True, slots=True)
class Block:
    """Commands of the page; `line` is where they begin, `sample` what they print, empty if it is not told."""

    name: str
    text: str
    line: int
    sample: str = ""

    @property
    def sets_names(self) -> bool:
        """Whether it holds names that a reader sets."""
        return self.name.startswith("set-")


def read_blocks(text: str) -> list[Block]:
    """The blocks in their order. Raises PageError."""
    blocks: dict[str, Block] = {}
    for kind, name, body, line in _fences(text.splitlines()):
        if kind == "sample":
            if name not in blocks or blocks[name].sample:
                raise PageError(f"line {line}: a sample follows the one block whose output it is: {name}")
            blocks[name] = replace(blocks[name], sample=body)
        elif name in blocks:
            raise PageError(f"line {line}: there is a block {name} already, choose another name")
        else:
            blocks[name] = _checked(Block(name, body, line))
    return list(blocks.values())


def page_blocks(path: Path = PAGE) -> list[Block]:
    """Those of the page. Raises PageError."""
    return read_blocks(path.read_text())


def names_set(block: Block) -> dict[str, str]:
    """The names that it sets and the page's own values. Raises PageError for any other line."""
    found = {}
    for number, line in enumerate(block.text.splitlines(), block.line):
        match = _EXPORT.fullmatch(line)
        if match is None:
            raise PageError(f"line {number}: {block.name} may hold nothing but `export NAME=value`: {line}")
        found[match["name"]] = match["value"]
    return found


def _checked(block: Block) -> Block:
    if block.sets_names:
        names_set(block)
    elif re.search(r"^\s*export ", block.text, re.MULTILINE):
        raise PageError(f"line {block.line}: {block.name} exports a name: do that in a block set-...")
    return block


def _fences(lines: list[str]) -> Iterator[tuple[str, str, str, int]]:
    """Kind, name, text, and number of the first line of each fence; numbers count from 1."""
    number = 0
    while number < len(lines):
        fence = _FENCE.fullmatch(lines[number])
        if fence is None:
            _check_inline(lines[number], number + 1)
            number += 1
            continue
        mark = _MARK.fullmatch(lines[number - 1]) if number else None
        if mark is None:
            raise PageError(
                f"line {number + 1}: this fence is not known, write `<!-- block: NAME -->` before it"
            )
        if fence["language"] != _LANGUAGES[mark["kind"]]:
            raise PageError(f"line {number + 1}: a {mark['kind']} is written as {_LANGUAGES[mark['kind']]}")
        first = number + 1
        end = next((each for each in range(first, len(lines)) if lines[each] == "```"), None)
        if end is None:
            raise PageError(f"line {number + 1}: this fence does not end")
        yield mark["kind"], mark["name"], "\n".join(lines[first:end]), first + 1
        number = end + 1


def _check_inline(text: str, line: int) -> None:
    for command in _INLINE.findall(text):
        if _SPACE.search(command) is None:
            raise PageError(f'line {line}: `{command}` asks another namespace, write -n "$NAMESPACE" into it')
