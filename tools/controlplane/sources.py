"""Where the cluster and its binaries come from, decided from the environment alone."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from tools.controlplane.errors import BuildError, ContextError

KUBECONFIG_VARIABLE = "ASTRABOX_TEST_KUBECONFIG"
CONTEXTS_VARIABLE = "ASTRABOX_TEST_CONTEXTS"
ASSETS_VARIABLE = "KUBEBUILDER_ASSETS"
DEFAULT_CONTEXTS = ("astrabox-test", "kind-astrabox")


def cache_root(environ: Mapping[str, str]) -> Path:
    """Folder of everything this package keeps between runs; outside any work tree."""
    base = environ.get("XDG_CACHE_HOME", "")
    # The XDG specification tells to ignore a relative path.
    root = Path(base) if base.startswith("/") else Path(environ.get("HOME", "~")).expanduser() / ".cache"
    return root / "astrabox-scheduler" / "controlplane"


def allowed_contexts(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the contexts that tests may write to: the defaults and those the user added."""
    added = (name.strip() for name in environ.get(CONTEXTS_VARIABLE, "").split(","))
    return (*DEFAULT_CONTEXTS, *(name for name in added if name))


def check_context(kubeconfig: Mapping[str, Any], path: Path, allowed: Collection[str]) -> str:
    """Name of the current context, or `ContextError` if it is not one of ours."""
    context = kubeconfig.get("current-context")
    if not isinstance(context, str) or not context:
        raise ContextError(
            f"{KUBECONFIG_VARIABLE}={path} has no current context.\n"
            "Choose one: kubectl config use-context NAME"
        )
    if context not in allowed:
        raise ContextError(
            f"{KUBECONFIG_VARIABLE}={path} points at the context {context!r}, and tests create and delete "
            f"objects, so only these are accepted: {', '.join(allowed)}.\n"
            f"Choose another with `kubectl config use-context NAME`, or, if that cluster may be "
            f"written to, set {CONTEXTS_VARIABLE}={context}"
        )
    return context


def external_kubeconfig(environ: Mapping[str, str]) -> tuple[Path, str] | None:
    """Path and context of the cluster the user brought, or None if tests start their own."""
    value = environ.get(KUBECONFIG_VARIABLE)
    if not value:
        return None
    path = Path(value).expanduser()
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ContextError(
            f"{KUBECONFIG_VARIABLE}={path} cannot be read: {error}\nGive the path of one kubeconfig file."
        ) from error
    return path, check_context(content if isinstance(content, dict) else {}, path, allowed_contexts(environ))


def given_assets(environ: Mapping[str, str], names: Collection[str]) -> Path | None:
    """Return the folder of ready binaries the user brought; `BuildError` if it lacks one of `names`."""
    value = environ.get(ASSETS_VARIABLE)
    if not value:
        return None
    folder = Path(value).expanduser().absolute()
    missing = [name for name in names if not os.access(folder / name, os.X_OK)]
    if missing:
        raise BuildError(
            f"{ASSETS_VARIABLE}={folder} has no executable {', '.join(missing)}.\n"
            f"Point it at a folder with {', '.join(names)}, or unset it to build them from source."
        )
    return folder
