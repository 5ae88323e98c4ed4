"""The configuration that Kubernetes puts into every pod: two variables and three files.

Read here and not by kubernetes-asyncio: `import kubernetes_asyncio.config` brings in the whole
generated client, 2.0-2.4 s of CPU and 65 MB in the process of AstraBox, for what these lines do.
"""

import os
from pathlib import Path
from typing import Final

from astrabox_scheduler_client.endpoint import Endpoint, Tls, environment_proxy
from astrabox_scheduler_client.errors import ConnectError

FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def in_cluster() -> bool:
    """True inside a pod."""
    return bool(os.environ.get("KUBERNETES_SERVICE_HOST"))


async def load_in_cluster(folder: Path = FOLDER) -> Endpoint:
    """Read the pod's configuration. Raises ConnectError."""
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST", ""),
        os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    base_url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    tls = Tls(ca_file=str(folder / "ca.crt"))
    try:
        token = (folder / "token").read_text(encoding="ascii").strip()
        fingerprint = tls.fingerprint()
    except (OSError, ValueError) as error:
        raise ConnectError(
            "KUBERNETES_SERVICE_HOST is set, but the service account of this pod cannot be read from"
            f" {folder} ({type(error).__name__}): set automountServiceAccountToken, or name a kubeconfig"
        ) from error
    if not token:
        raise ConnectError(f"{folder / 'token'} is empty: check the pod's service account")
    return Endpoint(
        base_url=base_url,
        namespace=_namespace(folder),
        authorization=f"Bearer {token}",
        tls=tls,
        tls_fingerprint=fingerprint,
        proxy=environment_proxy(base_url),
    )


def _namespace(folder: Path) -> str:
    try:
        return (folder / "namespace").read_text(encoding="ascii").strip() or "default"
    except (OSError, ValueError):
        return "default"
