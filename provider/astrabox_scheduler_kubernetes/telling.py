"""What goes into the logs: no text of an exception that can quote a prompt, and nothing twice."""

import logging
import traceback
from collections import OrderedDict
from typing import Final

_REMEMBERED: Final = 1000


def trace_of(error: BaseException) -> str:
    """Where a fault of ours happened and of what type it is, without its text."""
    return f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}"


class Told:
    """Remembers about which version of which run something was said; that of the latest thousand runs."""

    def __init__(self) -> None:
        self._versions: OrderedDict[tuple[str, type], str | None] = OrderedDict()

    def level(self, level: int, name: str, version: str | None, about: type) -> int:
        """`level` the first time for this version of the run and this kind of error, DEBUG after that."""
        key = name, about
        known = key in self._versions and self._versions[key] == version
        self._versions[key] = version
        self._versions.move_to_end(key)
        while len(self._versions) > _REMEMBERED:
            self._versions.popitem(last=False)
        return logging.DEBUG if known else level
