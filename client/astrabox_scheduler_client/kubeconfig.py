"""The configuration of a kubeconfig file, for everything that runs outside a pod."""

import asyncio
import os
from pathlib import Path
from typing import Any, Final

from astrabox_scheduler_client.endpoint import Endpoint, Tls, environment_proxy
from astrabox_scheduler_client.errors import ConnectError

_DEFAULT: Final = "~/.kube/config"
# A plug-in that waits for a browser or a network must not hold up the process for ever.
_EXEC_SECONDS: Final = 15.0


async def load_kubeconfig(paths: str | None, context: str | None) -> Endpoint:
    """Read a kubeconfig: `paths` (joined by `:`), or KUBECONFIG, or the default. Raises ConnectError."""
    paths = paths or os.environ.get("KUBECONFIG") or _DEFAULT
    if not _any_file(paths):
        raise ConnectError(
            f"no cluster configuration: not inside a pod (KUBERNETES_SERVICE_HOST is not set)"
            f" and no file {paths}: set KUBECONFIG, or name a kubeconfig in the settings"
        )
    try:
        # The import takes 2.0-2.4 s of CPU and 65 MB, since the whole generated client comes with it.
        # So it is here, in a thread, and nowhere else: a pod does not need it.
        config = await asyncio.to_thread(_import_config)
        async with asyncio.timeout(_EXEC_SECONDS):
            configuration, chosen = await _load(config, paths, context)
        tls = Tls(
            ca_file=configuration.ssl_ca_cert,
            certificate_file=configuration.cert_file,
            key_file=configuration.key_file,
            server_name=configuration.tls_server_name,
            verify=configuration.verify_ssl,
        )
        fingerprint = tls.fingerprint()
    except Exception as error:
        raise ConnectError(_complaint(paths, context, error)) from error
    # A token file ends with a newline, which no header may contain.
    authorization = (configuration.api_key.get("BearerToken") or "").strip()
    return Endpoint(
        base_url=configuration.host,
        namespace=chosen.get("namespace") or "default",
        authorization=authorization or None,
        tls=tls,
        tls_fingerprint=fingerprint,
        proxy=configuration.proxy or environment_proxy(configuration.host),
    )


async def _load(config: Any, paths: str, context: str | None) -> tuple[Any, dict[str, Any]]:
    configuration = _import_configuration()()
    loader = await config.load_kube_config(
        config_file=paths, context=context, client_configuration=configuration, persist_config=False
    )
    current = loader.current_context or {}
    return configuration, current.get("context") or {}


def _any_file(paths: str) -> bool:
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)


def _import_config() -> Any:
    from kubernetes_asyncio import config  # noqa: PLC0415

    return config


def _import_configuration() -> Any:
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415

    return Configuration


def _complaint(paths: str, context: str | None, error: Exception) -> str:
    """Of the loader's own texts only those that cannot quote a credential."""
    told = f": {error}" if type(error).__name__ == "ConfigException" else ""
    chosen = f", context {context}" if context else ""
    return (
        f"the kubeconfig {paths}{chosen} cannot be used ({type(error).__name__}{told[:300]}):"
        " check it with `kubectl config view` and `kubectl version`"
    )
