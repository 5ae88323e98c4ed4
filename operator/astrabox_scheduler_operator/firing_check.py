"""What `helm test` runs: a schedule that is due in the next minute, and what the operators make of it.

The schedule, the operators and the API server are the real ones. If an AstraBox process is there, the
due time has to become one run, and AstraBox is asked for a Deployment that it does not know: it answers
that this run has failed for good. If none is there, the due time has to be skipped with that reason, which is
what `--require-astrabox` refuses. Both are removed at the end.
"""

import argparse
import asyncio
import contextlib
import json
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeVar

from astrabox_scheduler_client.api import SchedulerApi, open_api
from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_client.errors import ApiError, ConnectError, NotFound
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.firing import PRESENCE_SETTLE, SkipReason
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.names import scheduled_run_name
from astrabox_scheduler_crds.run import Phase, RunInvocation
from astrabox_scheduler_crds.schedule import DeploymentSchedule, ScheduleSpec

NOTICE: Final = timedelta(seconds=10)
"""A due time nearer than this may pass before the operators know of the schedule."""
OPERATORS_SECONDS: Final = 60.0
SEEN_SECONDS: Final = 45.0
"""Longer than a sweep takes to find what a watch has missed."""
SETTLED_SECONDS: Final = PRESENCE_SETTLE.total_seconds() + 40.0
FINISHED_SECONDS: Final = 30.0
_PAUSE_SECONDS: Final = 0.5
_NOBODY: Final = (
    "set ASTRABOX_SCHEDULER_PROVIDER=kubernetes in its pods and start them; if they are in another namespace"
    ", set ASTRABOX_SCHEDULER_KUBERNETES_NAMESPACE there. If they run, their log says why they have no Lease"
)
T = TypeVar("T")


class CheckFailedError(Exception):
    """What was seen instead of what should be; one sentence that says where to look."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line: 0 when all is as it should be, 1 when not."""
    parser = argparse.ArgumentParser(
        prog="python -m astrabox_scheduler_operator.firing_check",
        description="Lets a due time fire and says what the operators have made of it.",
    )
    told = "fail when no AstraBox process is there, instead of being content with the due time being skipped"
    parser.add_argument("--require-astrabox", action="store_true", help=told)
    return asyncio.run(run(require_astrabox=parser.parse_args(arguments).require_astrabox))


async def run(*, require_astrabox: bool) -> int:
    """Run the test; the exit code. SIGTERM ends it, and what it wrote is removed all the same."""
    if task := asyncio.current_task():
        # As PID 1 of its container a process without a handler would not even end.
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        api = await open_api(ConnectSettings(), role="helm-test")
        try:
            await check_operators(api)
            async with schedule(api) as (written, due):
                await check_firing(api, written, due, require_astrabox=require_astrabox)
        finally:
            await api.aclose()
    except (CheckFailedError, ApiError, ConnectError) as error:
        sys.stderr.write(f"FAILED: {error}\n")
        return 1
    except asyncio.CancelledError:
        sys.stderr.write("FAILED: ended from outside, such as by the deadline of its pod\n")
        return 1
    say("passed")
    return 0


def say(text: str) -> None:
    """One line of the pod's log."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


async def check_operators(api: SchedulerApi) -> None:
    """Some operator has to hold its Lease. Raises CheckFailedError."""

    async def found() -> list[str] | None:
        return await live(api, "operator") or None

    advice = "no operator holds a Lease: look at the log and at /readyz of the operator's pods"
    say(f"operators: {', '.join(await within(OPERATORS_SECONDS, found, advice))}")


async def live(api: SchedulerApi, role: str) -> list[str]:
    """Names of the Leases of this role that were renewed within their duration."""
    leases = [each for each in await api.leases.list() if each.role == role and not each.released]
    now = api.clock.now()
    return [
        each.metadata.name
        for each in leases
        if each.spec.renew_time is not None
        and now - each.spec.renew_time <= timedelta(seconds=each.spec.lease_duration_seconds)
    ]


@contextlib.asynccontextmanager
async def schedule(api: SchedulerApi) -> AsyncIterator[tuple[str, datetime]]:
    """The name of a schedule with one due time, and that time; removed with its runs at the end."""
    name = f"helm-test-{secrets.token_hex(4)}"
    await api.leases.list()  # the first answer sets the clock
    due = next_due(api.clock.now())
    spec = ScheduleSpec(
        deployment_id=name,
        cron=f"{due.minute} {due.hour} {due.day} {due.month} *",
        time_zone="UTC",
        payload=json.dumps({"prompt": "a test of the scheduler by helm, there is nothing to do"}),
    )
    metadata = ObjectMeta(name=name, labels={labels.DEPLOYMENT_LABEL: name})
    await api.schedules.create(DeploymentSchedule(metadata=metadata, spec=spec))
    say(f"schedule {name} is due at {due:%H:%M} UTC")
    try:
        yield name, due
    finally:
        with contextlib.suppress(NotFound):
            await api.schedules.delete(name)
        for run in await api.runs.list_metadata_for_deployment(name):
            with contextlib.suppress(NotFound):
                await api.runs.delete(run.name)


def next_due(now: datetime) -> datetime:
    """The first whole minute that leaves the operators time to hear of it; `now` is in UTC."""
    return (now + NOTICE).replace(second=0, microsecond=0) + timedelta(minutes=1)


async def check_firing(
    api: SchedulerApi, name: str, due: datetime, *, require_astrabox: bool = False
) -> None:
    """The due time is seen before, and becomes a run or a reason after. Raises CheckFailedError."""

    async def seen() -> DeploymentSchedule | None:
        stored = await api.schedules.get(name)
        return stored if stored.status.next_due_time == due else None

    async def settled() -> DeploymentSchedule | None:
        stored = await api.schedules.get(name)
        return stored if stored.status.last_due_time == due or stored.status.skipped else None

    await within(SEEN_SECONDS, seen, "no operator has written the next due time into the schedule's status")
    say("the operators know it")
    await asyncio.sleep(max(0.0, (due - api.clock.now()).total_seconds()))
    there = await live(api, "provider")
    advice = "the due time has neither become a run nor been skipped: look at the log of the operators"
    stored = await within(SETTLED_SECONDS, settled, advice)
    if stored.status.skipped is None:
        await check_run(api, name, due)
    elif there or stored.status.skipped.reason != SkipReason.NO_PROVIDER:
        raise CheckFailedError(
            f"the due time was skipped for {stored.status.skipped.reason}, AstraBox processes: {there}"
        )
    elif require_astrabox:
        raise CheckFailedError(f"the due time was skipped, because no AstraBox process is there: {_NOBODY}")
    else:
        say("skipped, because no AstraBox process is there: start AstraBox and test again to see it run")


async def check_run(api: SchedulerApi, name: str, due: datetime) -> None:
    """One run has come of it; what AstraBox makes of it is only told. Raises CheckFailedError."""
    wanted = scheduled_run_name(name, due)
    found = [run.metadata.name for run in await api.runs.list_for_deployment(name)]
    if found != [wanted]:
        raise CheckFailedError(f"the runs should be {wanted} alone, they are: {', '.join(found) or 'none'}")
    created = (await api.runs.get(wanted)).metadata.creation_timestamp
    late = "" if created is None else f", {(created - due).total_seconds():.0f} s after its due time"
    say(f"run {wanted} was created{late}")

    async def finished() -> RunInvocation | None:
        run = await api.runs.get(wanted)
        return run if run.status.finished_at is not None else None

    try:
        run = await within(FINISHED_SECONDS, finished, "AstraBox has not finished the run")
    except CheckFailedError as error:
        # It may have all its slots taken: no fault of what is tested here.
        say(f"{error} within {FINISHED_SECONDS:.0f} s")
    else:
        why = ", as it knows no such Deployment" if run.status.phase is Phase.FAILED else ""
        say(f"AstraBox has dispatched it: {run.status.phase}{why}")


async def within(seconds: float, question: Callable[[], Awaitable[T | None]], advice: str) -> T:
    """The answer once there is one. Raises CheckFailedError with the advice after so many seconds."""
    limit = asyncio.get_running_loop().time() + seconds
    while asyncio.get_running_loop().time() < limit:
        if (answer := await question()) is not None:
            return answer
        await asyncio.sleep(_PAUSE_SECONDS)
    raise CheckFailedError(advice)


if __name__ == "__main__":
    sys.exit(main())
