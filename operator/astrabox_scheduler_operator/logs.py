"""Log lines: JSON or text on stderr, through the standard library.

No line ever holds a payload: our own log only names and times, and a framework's loggers are kept
above the levels at which they show objects.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pythonjsonlogger.json import JsonFormatter

from astrabox_scheduler_operator.settings import LogLevel

_FRAMEWORKS: Final = ("kopf", "aiohttp", "asyncio", "kubernetes_asyncio")
_PLAIN: Final = (str, int, float, bool, type(None))
_ATTRIBUTES: Final = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class _Json(JsonFormatter):
    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        """Only plain values: a framework attaches whole objects to its records."""
        super().add_fields(log_data, record, message_dict)
        for key in [key for key, value in log_data.items() if not isinstance(value, _PLAIN)]:
            del log_data[key]

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return datetime.fromtimestamp(record.created, UTC).isoformat().replace("+00:00", "Z")


class _Text(logging.Formatter):
    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")

    def format(self, record: logging.LogRecord) -> str:
        fields = {key: value for key, value in vars(record).items() if key not in _ATTRIBUTES}
        told = " ".join(f"{key}={value}" for key, value in fields.items() if isinstance(value, _PLAIN))
        return f"{super().format(record)} {told}".rstrip()


def configure_logs(level: LogLevel, style: Literal["json", "text"]) -> None:
    """Send every logger's lines to stderr, in one format."""
    handler = logging.StreamHandler(sys.stderr)
    if style == "json":
        names = {"asctime": "time", "levelname": "level", "name": "logger"}
        handler.setFormatter(_Json("%(asctime)s %(levelname)s %(name)s %(message)s", rename_fields=names))
    else:
        handler.setFormatter(_Text("%(asctime)s %(levelname)-7s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    logging.captureWarnings(capture=True)
    # kopf tells at INFO and DEBUG what its handlers did with each object; nothing of it is needed to
    # understand a run, and it is not ours to say that it never quotes one.
    framework_level = logging.INFO if level == "DEBUG" else max(logging.WARNING, root.level)
    for name in _FRAMEWORKS:
        logging.getLogger(name).setLevel(framework_level)
    # They warn that signals are not kopf's in a thread, which is on purpose, and tell what ended the watch,
    # each with its trace; `ScheduleWatch` has that too, and tells it in a line where it was a refusal.
    for name in ("kopf._core.reactor.running", "kopf._core.reactor.orchestration"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
