"""What goes into the logs: no text of an exception that can quote a prompt, and nothing twice."""

import logging
import traceback
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from astrabox_scheduler_client.errors import AccessDenied, Conflict, Gone, NotFound

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")
_REMEMBERED: Final = 1000
_RACES: Final = (Conflict, Gone, NotFound)
"""What a write by somebody else, or much time, brings about: once, it is no trouble."""
GRANT: Final = (
    "to grant what the account lacks, name it in astrabox.serviceAccounts of the chart's values, with "
    "astrabox.rbac=true, and install the chart, or upgrade it"
)


def trace_of(error: BaseException) -> str:
    """Where a fault of ours happened and of what type it is, without its text."""
    return f"{type(error).__name__}\n{''.join(traceback.format_tb(error.__traceback__))}"


def said(error: BaseException) -> str:
    """An error of the store, and for a refusal what to do about it."""
    if isinstance(error, AccessDenied):
        return f"{error}; {GRANT}"
    return str(error)


class Trouble:
    """Something that is tried until it works: told when it begins to fail, and when all of it works again.

    Another kind of error is told as well; the same one is not, however many runs it meets.
    """

    def __init__(self, failing: str, again: str) -> None:
        """`failing`: a sentence, with {} in the place of a name where there are several; `again`: its end."""
        self._failing = failing
        self._again = again
        self._names: set[str] = set()
        self._raced: set[str] = set()
        self._told: set[type] = set()

    def failed(self, error: Exception, name: str = "") -> None:
        """It failed and is tried on."""
        if isinstance(error, _RACES) and name not in self._raced:
            self._raced.add(name)
            level = logging.DEBUG
        else:
            level = logging.DEBUG if type(error) in self._told else logging.WARNING
            self._names.add(name)
            self._told.add(type(error))
        _LOG.log(level, "%s, trying on: %s", self._failing.format(name), said(error))

    def worked(self, name: str = "") -> None:
        """It was done."""
        self._forget(name)
        if self._told and not self._names:
            self._told.clear()
            _LOG.info(self._again)

    @contextmanager
    def of(self, name: str) -> Iterator[Callable[[Exception], None]]:
        """The tries of one, which was done unless they end with an exception; gives what tells a failure."""
        try:
            yield partial(self.failed, name=name)
        except BaseException:
            self._forget(name)
            raise
        self.worked(name)

    def _forget(self, name: str) -> None:
        self._names.discard(name)
        self._raced.discard(name)


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
