"""A copy of the working tree with edits, and an interpreter that finds the packages in there only."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sysconfig
import tempfile
import venv
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.mutations import outcomes
from tests.mutations.mutation import PACKAGE_FOLDERS, Edit, edited

_FOREIGN: Final = ("PYTEST_", "PYTHON", "VIRTUAL_ENV")
_WHERE: Final = """
import importlib, json, sys
print(json.dumps({name: importlib.import_module(name).__file__ for name in sys.argv[1:]}))
"""


class NotSoundError(Exception):
    """The copy cannot show anything; the text says why."""


@dataclass(frozen=True, slots=True)
class WorkingCopy:
    """`python` runs the code of `tree`; `folder` holds both."""

    folder: Path
    tree: Path
    python: Path

    def environment(self) -> dict[str, str]:
        """That of this process, without what leads Python elsewhere."""
        return {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}

    def edit(self, edits: Iterable[Edit]) -> None:
        """Make the edits, one after the other. Raises NotSoundError."""
        for file, old, new in edits:
            path = self.tree / file
            try:
                path.write_text(edited(path.read_text("utf-8"), old, new), "utf-8")
            except (OSError, ValueError) as error:
                raise NotSoundError(f"{file} cannot be edited: {error}") from error

    def check_imports(self, modules: Iterable[str]) -> None:
        """That these can be imported, and are those of the copy. Raises NotSoundError.

        In a process started elsewhere, as those that the tests start may be.
        """
        command = [str(self.python), "-c", _WHERE, *modules]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment(), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise NotSoundError(f"the edited modules cannot be imported: {_last_line(done.stderr)}")
        found: Mapping[str, str] = json.loads(done.stdout)
        for name, file in found.items():
            if not Path(file).resolve().is_relative_to(self.tree.resolve()):
                raise NotSoundError(f"{name} is imported from {file}, which is not the copy")


@contextmanager
def working_copy(source: Path) -> Iterator[WorkingCopy]:
    """Copy what git knows of or would take in, also if it is not committed; removed at the end."""
    with tempfile.TemporaryDirectory(prefix="astrabox-mutation-") as name:
        folder = Path(name)
        copy = WorkingCopy(folder, folder / "tree", folder / "python" / "bin" / "python")
        _copy_files(source, copy.tree)
        _make_interpreter(folder / "python", copy.tree)
        yield copy


def _copy_files(source: Path, target: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=source, capture_output=True, text=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (source / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name)


def _make_interpreter(folder: Path, tree: Path) -> None:
    """A virtual environment whose path is the copy's packages, then what is installed here.

    PYTHONPATH would not do: whoever starts a process in a test sets its own. Of what is installed here
    no `.pth` file is read, so the editable packages of the source are not found.
    """
    venv.EnvBuilder(symlinks=True).create(folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    paths = [*(str(tree / each) for each in PACKAGE_FOLDERS), sysconfig.get_path("purelib")]
    (packages / "mutated.pth").write_text("\n".join(paths) + "\n", "utf-8")
    plugin = Path(outcomes.__file__)
    shutil.copy2(plugin, packages / f"mutation_{plugin.name}")


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["without a word"])[-1]
