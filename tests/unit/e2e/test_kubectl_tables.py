"""What kubectl prints is read by its headings."""

from __future__ import annotations

import pytest

from e2e.kubectl_tables import heading_line, rows, tables

TEXT = """NAME      LAST DUE               READY   AGE
nightly   2026-11-03T01:30:00Z   True    41d
fresh                            False   2s
"""


def test_cells_are_found_below_their_headings() -> None:
    listed = rows(TEXT)
    assert list(listed) == ["nightly", "fresh"]
    assert listed["nightly"]["LAST DUE"] == "2026-11-03T01:30:00Z"
    assert listed["fresh"] == {"NAME": "fresh", "LAST DUE": "", "READY": "False", "AGE": "2s"}


def test_tables_that_were_printed_one_after_the_other_are_told_apart() -> None:
    first, second = tables(f"a line before\n{TEXT}\nNAME   PHASE\nrun    NAME\n")
    assert first == TEXT.rstrip("\n")
    assert heading_line(second) == "NAME   PHASE"
    assert rows(second) == {"run": {"NAME": "run", "PHASE": "NAME"}}
    assert tables("2026-11-03 01:30:00+00:00\n") == []


def test_nothing_is_no_table() -> None:
    with pytest.raises(AssertionError, match="kubectl has printed nothing"):
        rows("\n")
