"""What `configure` finds out: everything that is missing for this provider to run, each with what to do."""

import asyncio
import logging
import threading
from datetime import timedelta
from typing import Final

from astrabox_scheduler_client.api import SchedulerApi
from astrabox_scheduler_client.errors import ApiError, ConnectError, Forbidden, advice
from astrabox_scheduler_crds.crd import lacking_fields
from astrabox_scheduler_crds.labels import ROLE_LABEL
from astrabox_scheduler_crds.permissions import PROVIDER_PERMISSIONS, by_resource
from astrabox_scheduler_kubernetes.settings import PREFIX
from astrabox_scheduler_kubernetes.store import Store
from astrabox_scheduler_kubernetes.telling import GRANT

_LOG = logging.getLogger("astrabox_scheduler_kubernetes")
LIMIT_SECONDS: Final = 15.0
_PUBLISHED_SECONDS: Final = 2.0
_SILENT: Final = (
    f"the cluster has not answered within {LIMIT_SECONDS:g} seconds: check address, DNS and network policies"
)


def missing(store: Store) -> list[str]:
    """Ask the cluster, from a thread with an event loop of its own, for at most about 15 seconds."""
    found: list[str] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            found.extend(asyncio.run(_missing(store)))
        except BaseException as error:  # noqa: BLE001 - raised below, in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=ask, name="astrabox preflight", daemon=True)
    thread.start()
    thread.join(LIMIT_SECONDS + 2)
    if thread.is_alive():
        return [_SILENT]
    if errors:
        raise errors[0]
    return found


async def _missing(store: Store) -> list[str]:
    try:
        async with asyncio.timeout(LIMIT_SECONDS), store.use() as api:
            return await _ask(api)
    except ConnectError as error:
        return [str(error)]
    except TimeoutError:
        return [_SILENT]


async def _ask(api: SchedulerApi) -> list[str]:
    checks = (_definitions, _rights, _operator)
    answers = await asyncio.gather(*(check(api) for check in checks), return_exceptions=True)
    lines: dict[object, str] = {}  # an API server that is away answers no check, and is told once
    for answer in answers:
        if isinstance(answer, ApiError):
            where = api.transport.connection.base_url
            told = f"the cluster at {where} does not answer as it should ({answer}): {advice(answer)}"
            lines.setdefault(type(answer), told)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            lines.update((line, line) for line in answer)
    return list(lines.values())


async def _definitions(api: SchedulerApi) -> list[str]:
    try:
        lacking = lacking_fields(await api.discovery.published_schema())
        if lacking:
            # The API server publishes what was just installed a moment after it serves it.
            await asyncio.sleep(_PUBLISHED_SECONDS)
            lacking = lacking_fields(await api.discovery.published_schema())
    except Forbidden as error:
        _LOG.warning("the fields of the resources could not be checked: %s", error)
        return []
    return [str(each) for each in lacking]


async def _rights(api: SchedulerApi) -> list[str]:
    denied = await api.access.denied(PROVIDER_PERMISSIONS)
    if not denied:
        return []
    try:
        account = f"the account {await api.access.account()}"
    except ApiError:
        account = "the account"  # what it lacks is known, and of more use than why its name is not
    lines = [f"{account} may not {each} in namespace {api.namespace}" for each in by_resource(denied)]
    kubectl = f"kubectl -n {api.namespace}"
    hint = (
        f"{GRANT}; or bind it to the Role for AstraBox of the chart or of "
        f"deploy/rbac.yaml, whose name ends with -provider (`{kubectl} get roles`): "
        f"`{kubectl} create rolebinding <a name> --role=<that Role> "
        "--serviceaccount=<its namespace>:<its name>`"
    )
    return [*lines, hint]


async def _operator(api: SchedulerApi) -> list[str]:
    try:
        leases = await api.leases.list(f"{ROLE_LABEL}=operator")
    except Forbidden:
        return []  # told among the rights
    if not leases:
        hint = (
            f"install the chart of this release there (`helm install -n {api.namespace} --wait`), or set "
            f"{PREFIX}NAMESPACE to the namespace that an operator works in"
        )
        return [f"no operator has ever run in namespace {api.namespace}: {hint}"]
    now = api.clock.now()
    if all(
        lease.released
        or lease.spec.renew_time is None
        or now - lease.spec.renew_time > timedelta(seconds=lease.spec.lease_duration_seconds)
        for lease in leases
    ):
        _LOG.warning(
            "no operator is running in namespace %s at the moment: nothing fires until one is", api.namespace
        )
    return []
