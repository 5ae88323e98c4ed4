"""kopf without the client library that it would load only to recognise that library's objects.

kopf imports kubernetes_asyncio if it is installed. Ours is there for kubeconfig files, and is loaded
when one is read. Its models cost every operator 1.3 s of CPU at the start and 69 MiB of memory, and
nothing of ours hands such an object to kopf.
"""

import sys

_UNUSED = "kubernetes_asyncio"

if _UNUSED in sys.modules:
    import kopf
else:
    # None is how the import system is told "not here".
    sys.modules[_UNUSED] = None  # type: ignore[assignment]
    try:
        import kopf
    finally:
        del sys.modules[_UNUSED]

__all__ = ["kopf"]
