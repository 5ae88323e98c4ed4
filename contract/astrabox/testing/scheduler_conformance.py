"""The contract test of a scheduler provider, for its own test suite to bind.

::

    class TestExampleScheduler(SchedulerProviderContractSuite):
        def make_provider(self, store):
            provider = ExampleSchedulerProvider(...)  # on the empty `store`
            provider.configure(repository_backend=...)
            return provider

        async def fire_due_times(self, provider, deployment_id, start, end): ...

The module that binds it defines a pytest fixture ``store``. The tests are coroutine functions:
pytest-asyncio in its auto mode runs them. They need one process; two guarantees need several, and
are to be tested on a store shared by real processes: another replica fires the same due time, and
a run goes on after its process is gone.
"""

from astrabox.testing.conformance.base import ConformanceBase, Window
from astrabox.testing.conformance.dispatch import Dispatch
from astrabox.testing.conformance.due_times import Disabling, DueTimes, OnceOnly
from astrabox.testing.conformance.errors import Errors
from astrabox.testing.conformance.handler import RecordingHandler, canonical, session_of, turn_of
from astrabox.testing.conformance.lifecycle import LifeCycle, Recovery
from astrabox.testing.conformance.runs import Enqueue, History, Payloads

__all__ = [
    "ConformanceBase",
    "RecordingHandler",
    "SchedulerProviderContractSuite",
    "Window",
    "canonical",
    "session_of",
    "turn_of",
]


class SchedulerProviderContractSuite(
    DueTimes, OnceOnly, Disabling, Dispatch, Recovery, LifeCycle, Enqueue, History, Payloads, Errors
):
    """Every guarantee that one process can show; knobs and hooks are those of `ConformanceBase`."""
