"""G9: errors are AstraBox's own, without a word of the engine."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.faults.history.facts import Command, Violation
from tests.faults.history.view import View

_TYPES = frozenset({"SchedulerUnavailable", "InvalidSchedule", "ScheduleCapacityExceeded"})
"""What apply, delete, reconcile and enqueue may raise."""
_WORDS = re.compile(
    r"kube|k8s|\betcd\b|resource ?version|api ?server|apiserver|\baiohttp\b|\bleases?\b|\bkopf\b|\bcrds?\b"
    r"|custom resource|deploymentschedule|runinvocation|\bdsched\b|\bruninv\b|namespace|configmap|webhook"
    r"|\bpods?\b|status code|\bhttp\b|already ?exists|clientconnector|errno|traceback|\bssl\b|/apis?/",
    re.IGNORECASE,
)
_CODES = re.compile(
    r"(?<![\w.])(?:401|403|404|405|409|410|415|422|429|500|502|503|504)(?![\w.]|\s+(?:byte|char|sec|enabl|sched|run))"
)


def spoken(view: View) -> Iterator[Violation]:
    """Errors of commands, and those in ledgers."""
    for command in view.history.commands:
        if command.error is None or command.returned is None:
            continue  # the connection's own error, for want of an answer
        kind, _, told = command.error.partition(": ")
        where = f"{command.op} in {command.host} at {view.when(command.sent)}"
        if kind not in _TYPES:
            yield Violation("G9", f"{where} was answered with {kind}", deployment_id=command.deployment_id)
        word = foreign_word(_without_quotes(told, command))
        if word:
            what = f"{where} was answered with the word {word!r}"
            yield Violation("G9", what, deployment_id=command.deployment_id)
    for host, by_deployment in (view.history.ledgers or {}).items():
        for deployment, rows in by_deployment.items():
            for row in rows:
                word = foreign_word(str(row.get("error") or ""))
                if word:
                    what = f"the ledger of {host} has the word {word!r} in an error"
                    yield Violation("G9", what, str(row.get("run_id")), deployment)


def foreign_word(told: str) -> str | None:
    """The first word of the engine, or status code of its protocol, in a text."""
    found = _WORDS.search(told) or _CODES.search(told)
    return found[0] if found else None


def _without_quotes(told: str, command: Command) -> str:
    """An error may quote what AstraBox itself gave."""
    schedules = [command.schedule or {}, *command.given]
    given = [command.deployment_id, command.replayed_from]
    given += [each.get(name) for each in schedules for name in ("deployment_id", "cron", "timezone")]
    for text in sorted((str(each) for each in given if each), key=len, reverse=True):
        told = told.replace(text, "")
    return told
