"""The watch on schedules: kopf in a thread of its own, which only hands objects over.

In a thread, because kopf takes over the signals of the loop that it runs in and cancels every task
of that loop when it ends; and because a blocked handler must not block the firing. Nothing here
does IO of our own, and nothing is ever written to an object: no finalizer, no annotation.
"""

import asyncio
import contextlib
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import ValidationError

from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_client.endpoint import Endpoint
from astrabox_scheduler_client.errors import ApiError, Forbidden, NotServed, error_of
from astrabox_scheduler_client.incluster import in_cluster, load_in_cluster
from astrabox_scheduler_client.kubeconfig import load_kubeconfig
from astrabox_scheduler_client.resource import paths_of
from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.metadata import ObjectMeta
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from astrabox_scheduler_operator.lean_kopf import kopf

SERVER_TIMEOUT_SECONDS: Final = 50  # kopf sends it as it is, and the API server refuses a fraction
CLIENT_TIMEOUT_SECONDS: Final = 60.0
CONNECT_TIMEOUT_SECONDS: Final = 10.0
_TURN_SECONDS: Final = 0.02
_IDENTITY: Final = "astrabox-scheduler"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Change:
    """What the watch saw of one object. Without `schedule` it is gone, or `unreadable` in these fields."""

    kind: Literal["there", "gone"]
    metadata: ObjectMeta
    schedule: DeploymentSchedule | None = None
    unreadable: tuple[str, ...] = ()


class ScheduleWatch:
    """Feeds `receive` on the event loop that called `start`. `ended` is set when the watch is over.

    `refused` is then what the API server has refused it with for good, None if that is not what ended it.
    """

    def __init__(self, settings: ConnectSettings, namespace: str, receive: Callable[[Change], None]) -> None:
        self._settings = settings
        self._namespace = namespace
        self._receive = receive
        self._changes: deque[Change] = deque()
        self._taking = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.ended = asyncio.Event()
        self.refused: ApiError | None = None

    def start(self) -> None:
        """Start the thread."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    async def stop(self, seconds: float) -> None:
        """End it, waiting so long at most; the thread does not outlive the process in any case."""
        self._stop.set()
        if self._thread.is_alive():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.ended.wait()

    def _run(self) -> None:
        try:
            asyncio.run(self._operate())
        except Exception as error:  # noqa: BLE001 - `ended` tells the owner, who ends the process
            self.refused = refusal(error, self._namespace)
            if self.refused is None:
                _LOG.exception("the watch on schedules has ended")
        finally:
            self._hand_over(self.ended.set)

    async def _operate(self) -> None:
        try:
            await kopf.operator(
                registry=self._registry(),
                settings=watch_settings(),
                # By default kopf asks for the user's name, and the user of a pod may have none.
                identity=_IDENTITY,  # type: ignore[arg-type]  # a str, whose type kopf does not export
                standalone=True,
                namespaces=[self._namespace],
                stop_flag=self._stop,
            )
        finally:
            # kopf waits for the flag in a worker thread, and no event loop closes before that has ended.
            self._stop.set()

    def _registry(self) -> kopf.OperatorRegistry:
        registry = kopf.OperatorRegistry()

        @kopf.on.login(registry=registry)
        async def login(**_: Any) -> kopf.ConnectionInfo:
            return connection_info(await _load(self._settings))

        @kopf.on.event(labels.GROUP, labels.VERSION, labels.SCHEDULE_PLURAL, registry=registry)
        async def changed(event: Mapping[str, Any], **_: Any) -> None:
            change = change_of(event)
            if change is not None:
                self._changes.append(change)
                if not self._taking.is_set():
                    self._taking.set()
                    self._hand_over(self._take)

        return registry

    def _take(self) -> None:
        """Receive what has come, a turn at a time: a load of thousands must not hold up the event loop."""
        end = time.monotonic() + _TURN_SECONDS
        while self._changes and time.monotonic() < end:
            self._receive(self._changes.popleft())
        assert self._loop is not None
        if not self._changes:
            self._taking.clear()
            if not self._changes:  # looked at again: one may have come before the mark was taken away
                return
            self._taking.set()
        self._loop.call_soon(self._take)

    def _hand_over(self, call: Callable[..., object], *arguments: object) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # the process is ending, and its loop is closed
            self._loop.call_soon_threadsafe(call, *arguments)


def watch_settings() -> kopf.OperatorSettings:
    """The settings with which kopf watches and does nothing else."""
    settings = kopf.OperatorSettings()
    settings.scanning.disabled = True  # with namespaced rights, scanning keeps the watch off for a minute
    settings.posting.enabled = False
    settings.process.ultimate_exiting_timeout = None
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = CLIENT_TIMEOUT_SECONDS
    settings.watching.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.networking.connect_timeout = CONNECT_TIMEOUT_SECONDS
    settings.networking.request_timeout = CLIENT_TIMEOUT_SECONDS
    settings.queueing.idle_timeout = 0.5  # a task per changed object lives so long
    settings.queueing.exit_timeout = 0.5
    return settings


def change_of(event: Mapping[str, Any]) -> Change | None:
    """Read a watch event; None for one that is about no object."""
    body = event["object"]
    try:
        metadata = ObjectMeta.model_validate(body.get("metadata", {}))
    except ValidationError as error:
        _LOG.warning("the watch brought an object without metadata: %s", ", ".join(paths_of(error)))
        return None
    if event["type"] == "DELETED":
        return Change("gone", metadata)
    try:
        return Change("there", metadata, DeploymentSchedule.model_validate(body))
    except ValidationError as error:
        return Change("there", metadata, unreadable=paths_of(error))


def refusal(error: Exception, namespace: str) -> ApiError | None:
    """What kopf was refused with, as a call of ours would tell it; None unless a right or the CRD is missing.

    kopf exports none of its errors: they have the status, and the Status object behind its message.
    """
    status = getattr(error, "status", None)
    if not isinstance(status, int):
        return None
    body = json.dumps(error.args[-1]).encode() if error.args else b""
    path = f"/apis/{labels.API_VERSION}/namespaces/{namespace}/{labels.SCHEDULE_PLURAL}"
    told = error_of("GET", path, status, body)
    return told if isinstance(told, (Forbidden, NotServed)) else None


def connection_info(endpoint: Endpoint) -> kopf.ConnectionInfo:
    """The same credentials for kopf, which asks again whenever they are refused."""
    scheme, _, token = (endpoint.authorization or "").partition(" ")
    return kopf.ConnectionInfo(
        server=endpoint.base_url,
        ca_path=endpoint.tls.ca_file,
        insecure=not endpoint.tls.verify,
        scheme=scheme or None,
        token=token or None,
        certificate_path=endpoint.tls.certificate_file,
        private_key_path=endpoint.tls.key_file,
        default_namespace=endpoint.namespace,
        proxy_url=endpoint.proxy,
    )


async def _load(settings: ConnectSettings) -> Endpoint:
    if settings.kubeconfig is None and settings.context is None and in_cluster():
        return await load_in_cluster()
    return await load_kubeconfig(settings.kubeconfig, settings.context)
