"""The user guide cannot part from the code (TZ-03)."""

import re

import pytest

from astrabox_scheduler_crds.cron import CronSchedule, InvalidCron
from tests.unit.cron.due import first
from tools.generated import due_times

PAGE = due_times.PAGE.read_text("utf-8")


def rows(head: str) -> list[list[str]]:
    """The cells of each row of the table under a head line."""
    lines = PAGE.partition(f"{head}\n")[2].splitlines()[1:]
    table = lines[: next(number for number, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def codes(cell: str) -> list[str]:
    return re.findall("`([^`]+)`", cell)


def test_the_table_of_cases_is_current() -> None:
    """TZ-03: it is generated from the cases that the tests run."""
    assert due_times.rendered() == {due_times.PAGE: PAGE}


def test_what_the_page_calls_refused_is_refused_and_its_replacement_is_not() -> None:
    """TZ-03."""
    table = rows("| Refused | Write instead |")
    assert len(table) >= 10
    for refused, instead in table:
        for cron in codes(refused):
            with pytest.raises(InvalidCron):
                CronSchedule.parse(cron, "UTC")
        for cron in codes(instead):
            assert CronSchedule.parse(cron, "UTC").text == cron


def test_every_form_on_the_page_is_accepted() -> None:
    """TZ-03: the first three in the minute or day field, names where they belong."""
    forms = [code for form, _ in rows("| Form | Means |") for code in codes(form)]
    assert len(forms) == 10
    for form in forms:
        field = 3 if form == "jan" else 4 if form[0].isalpha() else 0
        fields = ["0", "0", "*", "*", "*"]
        fields[field] = form
        CronSchedule.parse(" ".join(fields), "UTC")
    assert [run[14:16] for run in first(4, "10/15 * * * *", "UTC", "2026-01-01T00:00Z")] == [
        "10",
        "25",
        "40",
        "55",
    ]


def test_the_examples_of_the_two_rules_follow_them() -> None:
    """TZ-03: by the run that each rule has, or has not, in the second pass of the autumn hour."""
    real, local = rows("| Minute or hour begins with `*` | Neither begins with `*` |")[-1]
    assert all(cron.startswith("*") or cron.split()[1].startswith("*") for cron in codes(real))
    assert not any(cron.startswith("*") or cron.split()[1].startswith("*") for cron in codes(local))
    assert all(CronSchedule.parse(cron, "UTC")._real_time for cron in codes(real))
    assert not any(CronSchedule.parse(cron, "UTC")._real_time for cron in codes(local))
    for cron, follows in (("0-59 * * * *", True), ("* 0-23 * * *", True), ("0-59 0-23 * * *", False)):
        assert f"`{cron}`" in PAGE
        assert (first(1, cron, "Europe/Berlin", "2026-10-25T01:00Z") == ["2026-10-25T01:01Z"]) == follows
