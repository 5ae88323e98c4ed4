"""Rules about the tree that no linter has: sizes, names, words. `python -m tools.tree_rules`."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 50
_VAGUE = {"utils", "util", "helpers", "helper", "common", "misc", "manager"}
# Addresses of package registries, and folders that exist on one machine only.
_FOREIGN = re.compile(
    r"pypi\.org|pythonhosted\.org|proxy\.golang\.org|registry\.npmjs|(?<![\w.])/(?:work|root)/"
)
_BINARY = {".png", ".sum"}


def main() -> int:
    """Print each violation; returns the exit code."""
    violations = sorted({message for path in _tracked() for message in _check(path)})
    for message in violations:
        print(message, file=sys.stderr)
    return 1 if violations else 0


def _tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [path for name in listed.stdout.splitlines() if (path := ROOT / name).is_file()]


def _check(path: Path) -> Iterator[str]:
    name = path.relative_to(ROOT)
    if name.parts[0] == "operator" and len(name.parts) == 2:  # noqa: PLR2004
        yield f"{name}: no file directly in operator/, it would shadow the standard library's module"
    if path.stem in _VAGUE:
        yield f"{name}: the name says nothing, say what is in it"
    if path.suffix in _BINARY:
        return
    text = path.read_text()
    if path != Path(__file__).resolve() and (found := _FOREIGN.search(text)):
        yield f"{name}: names {found[0]}, which only some machines have"
    if path.suffix == ".py":
        yield from _check_sizes(name, text)


def _check_sizes(name: Path, text: str) -> Iterator[str]:
    lines = text.count("\n")
    if lines > MAX_MODULE_LINES:
        yield f"{name}: {lines} lines, at most {MAX_MODULE_LINES}: split it"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                yield f"{name}:{node.lineno}: {node.name} has {length} lines, at most {MAX_FUNCTION_LINES}"


if __name__ == "__main__":
    sys.exit(main())
