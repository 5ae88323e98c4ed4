"""The mutations fit the code as it is: what they edit is there, and so are the tests that must fail."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.mutations.catalogue import ALL
from tests.mutations.mutation import PACKAGE_FOLDERS, Mutation, edited, function_of
from tools.generated import mutations_table
from tools.generated.paths import ROOT

NAMES = [each.name for each in ALL]
EACH = pytest.mark.parametrize("mutation", ALL, ids=NAMES)


@EACH
def test_its_edits_can_be_made_and_leave_a_program(mutation: Mutation) -> None:
    texts: dict[str, str] = {}
    for file, old, new in mutation.edits:
        assert old != new
        assert file.split("/")[0] in PACKAGE_FOLDERS
        texts[file] = edited(texts.get(file) or (ROOT / file).read_text("utf-8"), old, new)
    for file, text in texts.items():
        compile(text, file, "exec")
    assert texts


@EACH
def test_its_tests_exist(mutation: Mutation) -> None:
    for test in mutation.tests:
        file, _, _ = test.partition("::")
        assert function_of(test) in functions(ROOT / file), test
    assert mutation.tests


def functions(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return {node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}


def test_every_name_is_unique_and_can_be_typed() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in NAMES)
    assert len({each.taken_out for each in ALL}) == len(ALL)


def test_the_table_is_current() -> None:
    page = mutations_table.PAGE.read_text("utf-8")
    assert mutations_table.rendered() == {mutations_table.PAGE: page}


def test_modules_are_named_as_they_are_imported() -> None:
    edits = (("crds/a/b.py", "", ""), ("crds/a/b.py", "", ""), ("client/c/d/e.py", "", ""))
    assert Mutation("m", "", edits, ()).modules() == ["a.b", "c.d.e"]


@pytest.mark.parametrize("text", ["", "a a"])
def test_an_edit_without_one_place_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not once"):
        edited(text, "a", "b")


def test_quick_leaves_out_what_ends_processes() -> None:
    tests = ("tests/faults/a.py::test_a", "tests/unit/b.py::test_b")
    assert Mutation("m", "", (), tests).quick().tests == tests[1:]
