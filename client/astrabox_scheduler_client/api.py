"""Everything of one namespace over one connection."""

import socket

from astrabox_scheduler_client.access import Access
from astrabox_scheduler_client.connect import ConnectSettings, connect
from astrabox_scheduler_client.discovery import Discovery
from astrabox_scheduler_client.events import Events
from astrabox_scheduler_client.leases import Leases
from astrabox_scheduler_client.runs import Runs
from astrabox_scheduler_client.schedules import Schedules
from astrabox_scheduler_client.transport import DEFAULT_TIMEOUT, Transport
from astrabox_scheduler_crds.server_clock import ServerClock


class SchedulerApi:
    """The typed calls. One instance belongs to one event loop."""

    def __init__(self, transport: Transport, namespace: str, instance: str | None = None) -> None:
        """`instance` names this process in Events; the host's name if not given."""
        self.transport = transport
        self.namespace = namespace
        self.schedules = Schedules(transport, namespace)
        self.runs = Runs(transport, namespace)
        self.leases = Leases(transport, namespace)
        self.events = Events(transport, namespace, instance or socket.gethostname())
        self.access = Access(transport, namespace)
        self.discovery = Discovery(transport)

    @property
    def clock(self) -> ServerClock:
        """The clock that every answer corrects."""
        return self.transport.clock

    async def aclose(self) -> None:
        """Close the connection; may be called twice."""
        await self.transport.connection.close()


async def open_api(
    settings: ConnectSettings,
    namespace: str | None = None,
    role: str = "client",
    clock: ServerClock | None = None,
    timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - the limit of later calls, not of this one
) -> SchedulerApi:
    """Connect (nothing is sent yet); without a namespace the configuration's own is used.

    Raises ConnectError.
    """
    connection = await connect(settings)
    transport = Transport(connection, clock or ServerClock(), timeout, role)
    return SchedulerApi(transport, namespace or connection.namespace)
