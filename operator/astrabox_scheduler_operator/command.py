"""The command line: everything is set by the environment."""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from pydantic import ValidationError

from astrabox_scheduler_client.environment import SettingsError
from astrabox_scheduler_client.errors import ApiError, ConnectError
from astrabox_scheduler_crds.cron import ZoneDataMissing
from astrabox_scheduler_operator.logs import configure_logs
from astrabox_scheduler_operator.settings import Settings, settings_help

_DISTRIBUTION = "astrabox-scheduler-kubernetes"
_PROGRAM = "astrabox_scheduler_operator"
_LOG = logging.getLogger(__name__)
_TOLD_IN_A_LINE = (ApiError, ConnectError, OSError, ZoneDataMissing)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the operator; 0 after SIGTERM or SIGINT, 1 after a failure, 2 for settings that cannot be used."""
    _parser().parse_args(arguments)
    try:
        settings = Settings.from_environment(os.environ)
    except SettingsError as error:
        told = "".join(f"- {each}\n" for each in error.problems)
        sys.stderr.write(f"{_PROGRAM}: the environment cannot be used:\n{told}")
        return 2
    configure_logs(settings.log_level, settings.log_format)
    # Imported late: kopf and what it brings are not needed to refuse settings or to show help.
    from astrabox_scheduler_operator.app import serve  # noqa: PLC0415

    try:
        asyncio.run(serve(settings))
    except _TOLD_IN_A_LINE as error:
        _LOG.error("the operator ends: %s", error)
        return 1
    except ValidationError as error:
        _LOG.error("the operator ends: %d values do not fit their model", error.error_count())
        return 1
    except Exception:  # noqa: BLE001 - the last word before the process ends, with its trace
        _LOG.exception("the operator ends")
        return 1
    _LOG.info("ended")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {_PROGRAM}",
        description="Creates a RunInvocation at every due time of the DeploymentSchedules in one namespace.",
        epilog=settings_help(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"{_DISTRIBUTION} {_version()}")
    return parser


def _version() -> str:
    try:
        return version(_DISTRIBUTION)
    except PackageNotFoundError:
        return "unknown"
