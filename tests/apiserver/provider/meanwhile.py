"""Lets something happen at one point of a provider's work on a schedule."""

from collections.abc import Awaitable, Callable
from typing import Any

from astrabox_scheduler_client.errors import Unreachable
from astrabox_scheduler_kubernetes import KubernetesSchedulerProvider

Act = Callable[[], Awaitable[object]]
_WRITES = ("create", "update", "delete")


def before(provider: KubernetesSchedulerProvider, method: str, act: Act) -> list[str]:
    """Let `act` happen right before the provider's first write of this kind; its writes, as they are sent."""

    async def write(first: bool, real: Act) -> Any:
        if first:
            await act()
        return await real()

    return _watched(provider, method, write)


def lost(provider: KubernetesSchedulerProvider, method: str, act: Act, *, carried_out: bool) -> list[str]:
    """Let the first write of this kind get no answer, and `act` happen before that is noticed."""

    async def write(first: bool, real: Act) -> Any:
        if not first:
            return await real()
        if carried_out:
            await real()
        await act()
        raise Unreachable("lost", ambiguous=True)

    return _watched(provider, method, write)


def _watched(
    provider: KubernetesSchedulerProvider, method: str, write: Callable[[bool, Act], Awaitable[Any]]
) -> list[str]:
    store = provider._engine()._store
    acquire = store.acquire
    sent: list[str] = []

    async def acquire_watched() -> Any:
        api = await acquire()
        for name in _WRITES:
            setattr(api.schedules, name, watched(api, name))
        return api

    def watched(api: Any, name: str) -> Any:
        real = getattr(type(api.schedules), name)

        async def call(*args: Any) -> Any:
            first = name == method and name not in sent
            sent.append(name)
            return await write(first, lambda: real(api.schedules, *args))

        return call

    store.acquire = acquire_watched  # type: ignore[method-assign]
    return sent
