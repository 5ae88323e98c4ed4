"""The grammar of the five fields, and the one normal form in which they go on.

Ours is stricter than that of any cron library: what two of them read differently is refused, and
what we accept is spelled out as plain values before a library sees it.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from .errors import InvalidCron, quoted

MAX_BYTES = 256
"""The longest expression, white space included; every character of a valid one is one byte."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_LONGEST_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_ITEM = re.compile(r"(?:\*|([0-9]+|[A-Za-z]+)(?:-([0-9]+|[A-Za-z]+))?)(?:/([0-9]+))?")


@dataclass(frozen=True, slots=True)
class _Field:
    """What one of the five fields may hold."""

    name: str
    first: int
    last: int
    highest: int
    """Highest number that may be written: 7 is a second name of Sunday, which is 0."""
    names: dict[str, int] = field(default_factory=dict)

    @property
    def allowed(self) -> str:
        names = tuple(self.names)
        return f"{self.first} to {self.highest}" + (f", or {names[0]} to {names[-1]}" if names else "")

    def refuse(self, text: str, why: str) -> InvalidCron:
        return InvalidCron(f"The {self.name} field has {quoted(text)}, {why}.", self.name)


_FIELDS = (
    _Field("minute", 0, 59, 59),
    _Field("hour", 0, 23, 23),
    _Field("day of month", 1, 31, 31),
    _Field("month", 1, 12, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    _Field("day of week", 0, 6, 7, {name: number for number, name in enumerate(_WEEKDAYS)}),
)


@dataclass(frozen=True, slots=True)
class Expression:
    """A valid expression."""

    text: str
    """As written, with single spaces between the fields."""
    normal: str
    """Five fields of ascending plain values, or `*` for a field that excludes nothing."""
    real_time: bool
    """True if the minute or the hour field begins with `*`: it then follows real time."""


def parse_expression(text: str) -> Expression:
    """Read five cron fields; raises InvalidCron, which names the field, for anything else."""
    texts = _split(text)
    minutes, hours, days, months, weekdays = (
        _field_values(rule, part) for rule, part in zip(_FIELDS, texts, strict=True)
    )
    either_day = texts[2] != "*" and texts[4] != "*"
    if min(days) > max(_LONGEST_MONTH[month - 1] for month in months):
        if not either_day:
            raise _FIELDS[2].refuse(
                texts[2], f"a day that never comes in month {texts[3]}: use a date that exists"
            )
        days = _every(_FIELDS[2])  # the weekdays alone decide
    elif either_day and (days == _every(_FIELDS[2]) or weekdays == _every(_FIELDS[4])):
        days, weekdays = _every(_FIELDS[2]), _every(_FIELDS[4])
    values = (minutes, hours, days, months, weekdays)
    return Expression(
        text=" ".join(texts),
        normal=" ".join(_normal(rule, chosen) for rule, chosen in zip(_FIELDS, values, strict=True)),
        real_time=texts[0].startswith("*") or texts[1].startswith("*"),
    )


def _split(text: str) -> list[str]:
    """Cut the text into its five fields."""
    if len(text) > MAX_BYTES:
        raise InvalidCron(f"The expression is longer than {MAX_BYTES} bytes: shorten it.")
    fields = [part for part in re.split("[ \t]+", text) if part]
    if fields and re.match("(CRON_)?TZ=", fields[0]):
        raise InvalidCron(
            f"The expression has {quoted(fields[0])}: leave it out, "
            "and write the zone into the field beside it (timezone or timeZone).",
            "timezone",
        )
    if fields and fields[0].startswith("@"):
        instead = _NICKNAMES.get(fields[0].lower(), "five fields")
        raise InvalidCron(
            f"The expression has {quoted(fields[0])}: write {instead}, names with @ are not known."
        )
    if len(fields) != len(_FIELDS):
        raise InvalidCron(
            f"The expression has {len(fields)} fields: write exactly five"
            " (minute, hour, day of month, month, day of week) with blanks between them,"
            " no seconds and no years."
        )
    return fields


def _field_values(rule: _Field, text: str) -> frozenset[int]:
    return frozenset().union(*(_item_values(rule, item) for item in text.split(",")))


def _item_values(rule: _Field, item: str) -> Iterable[int]:
    """Return the values of one element of a list: `*`, `a`, `a-b`, each with or without `/n`."""
    match = _ITEM.fullmatch(item)
    if item == "?":
        raise rule.refuse(item, "which is not known: write *")
    if match is None:
        raise rule.refuse(item, "which cannot be read: use *, a, a-b, */n, a/n, a-b/n or a list of these")
    low, high, step = match.groups()
    if step is not None and int(step) == 0:
        raise rule.refuse(item, "a step of 0: use a step of 1 or more")
    first = rule.first if low is None else _number(rule, low)
    if high is not None:
        last = _range_end(rule, item, (low, high, int(step or 1)), first)
    elif low is None or step is not None:
        last = max(first, rule.last)
    else:
        last = first
    return (rule.first if value > rule.last else value for value in range(first, last + 1, int(step or 1)))


def _number(rule: _Field, text: str) -> int:
    number = int(text) if text.isdigit() else rule.names.get(text.lower(), -1)
    if not rule.first <= number <= rule.highest:
        raise rule.refuse(text, f"which is not one of its values: use {rule.allowed}")
    return number


def _range_end(rule: _Field, item: str, written: tuple[str, str, int], first: int) -> int:
    low, high, step = written
    last = _number(rule, high)
    if last < first and high.lower() == "sun":
        last = rule.highest  # as in mon-sun
    if last < first:
        instead = _unwrapped(rule, first, last, step, named=low.isalpha())
        raise rule.refuse(item, f"a range that ends before it begins: write {instead}")
    return last


def _unwrapped(rule: _Field, first: int, last: int, step: int, *, named: bool) -> str:
    """What the writer of a range wanted that goes on after the end of its field."""
    names = {number: name for name, number in rule.names.items()} if named else {}

    def shown(*ends: int) -> str:
        return "-".join(names.get(each, str(each)) for each in dict.fromkeys(ends))

    if first > rule.last:  # 7 is Sunday
        return shown(rule.first, last) + (f"/{step}" if step > 1 else "")
    if step == 1:
        return f"{shown(first, rule.last)},{shown(rule.first, last)}"
    length = rule.last - rule.first + 1
    return ",".join(
        shown(rule.first + (value - rule.first) % length) for value in range(first, last + length + 1, step)
    )


def _every(rule: _Field) -> frozenset[int]:
    return frozenset(range(rule.first, rule.last + 1))


def _normal(rule: _Field, values: frozenset[int]) -> str:
    return "*" if values == _every(rule) else ",".join(map(str, sorted(values)))
