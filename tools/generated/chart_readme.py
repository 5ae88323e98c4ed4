"""The table of values in the chart's README, from the comments in its values.yaml.

A comment that begins with `# --` describes the key below it; lines of the comment that follow go on.
A key without one is a group, and its members are described.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from tools.generated.chart import CHART
from tools.generated.marks import between_marks

_HEAD: Final = "| Key | Default | Meaning |\n|---|---|---|\n"
_KEY: Final = re.compile(r"^( *)([A-Za-z][A-Za-z0-9]*):(?: |$)")
_MARK: Final = "# --"
_INDENT: Final = 2


@dataclass(frozen=True, slots=True)
class Value:
    """One value that can be set: its path, its default and what its comment says."""

    path: tuple[str, ...]
    default: Any
    meaning: str


def rendered() -> dict[Path, str]:
    """The README with the table in it. Raises ValueError when its place is gone."""
    page = CHART / "README.md"
    rows = "".join(map(_row, described((CHART / "values.yaml").read_text("utf-8"))))
    return {page: between_marks(page, _HEAD + rows, source="values.yaml")}


def described(text: str) -> list[Value]:
    """Every described value. Raises ValueError for one that is neither described nor a group of such."""
    defaults = yaml.safe_load(text)
    found = [Value(path, _at(defaults, path), meaning) for path, meaning in _comments(text)]
    paths = {value.path for value in found}
    if forgotten := [".".join(path) for path in _leaves(defaults, ()) if not _covered(path, paths)]:
        raise ValueError(f"values.yaml: write a `{_MARK}` comment above {', '.join(forgotten)}")
    return found


def _comments(text: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Each path that has a comment, and the comment."""
    path: list[str] = []
    words: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith(_MARK):
            words = [stripped.removeprefix(_MARK).strip()]
        elif stripped.startswith("#"):
            if words:
                words.append(stripped.removeprefix("#").strip())
        elif key := _KEY.match(line):
            path[len(key[1]) // _INDENT :] = [key[2]]
            if words:
                yield tuple(path), " ".join(words)
            words = []
        else:
            words = []


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and value:
        for name, member in value.items():
            yield from _leaves(member, (*path, name))
    else:
        yield path


def _covered(path: Sequence[str], described_paths: set[tuple[str, ...]]) -> bool:
    return any(tuple(path[:length]) in described_paths for length in range(1, len(path) + 1))


def _at(values: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        values = values[name]
    return values


def _row(value: Value) -> str:
    default = json.dumps(value.default).replace("|", "\\|")
    return f"| `{'.'.join(value.path)}` | `{default}` | {value.meaning.replace('|', chr(92) + '|')} |\n"
