"""How AstraBox finds its scheduler provider at start-up."""

import os
from collections.abc import Mapping
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Final

from astrabox.seams.scheduler import (
    ENTRY_POINT_GROUP,
    SEAMS_API_VERSION,
    SchedulerConfigurationError,
    SchedulerProvider,
)

SETTING: Final = "ASTRABOX_SCHEDULER_PROVIDER"
"""Environment variable that names the provider; ``none`` runs AstraBox without scheduled Deployments."""

BUILT_IN: Final = "dbos"
"""The provider that AstraBox ships and takes if the setting is absent; not part of this stand-in."""


class ProviderLoadError(SchedulerConfigurationError):
    """The provider that the setting names cannot be loaded; says to an operator what to do."""


def load_provider(environ: Mapping[str, str] | None = None) -> SchedulerProvider | None:
    """Make the provider that ``environ`` (the process's by default) names, not yet configured.

    Returns None for ``none``. Raises `ProviderLoadError` if the provider is not installed, is
    broken, has another name than its entry point, or was written for another version of the seam.
    """
    wanted = (os.environ if environ is None else environ).get(SETTING, "").strip() or BUILT_IN
    if wanted == "none":
        return None
    return _instantiate(_find(wanted, entry_points(group=ENTRY_POINT_GROUP)))


def _find(wanted: str, installed: EntryPoints) -> EntryPoint:
    targets = {entry.value: entry for entry in installed if entry.name == wanted}
    if not targets:
        names = ", ".join(sorted(installed.names)) or "none at all"
        what = (
            f"the built-in provider {wanted!r} is not part of this stand-in"
            if wanted == BUILT_IN
            else f"no scheduler provider named {wanted!r} is installed"
        )
        raise ProviderLoadError(
            f"{what} (installed: {names}). Install the distribution that declares it, set {SETTING} to an "
            f"installed provider, or set {SETTING}=none to run without scheduled Deployments."
        )
    if len(targets) > 1:
        raise ProviderLoadError(
            f"several distributions declare the scheduler provider {wanted!r}: {', '.join(sorted(targets))}. "
            "Uninstall all but one."
        )
    return next(iter(targets.values()))


def _instantiate(entry: EntryPoint) -> SchedulerProvider:
    where = f"scheduler provider {entry.name!r} ({entry.value})"
    hint = f"Install a release of it that works, or set {SETTING} to another provider or to none."
    try:
        provider = entry.load()()
    except Exception as error:
        raise ProviderLoadError(
            f"{where} cannot be loaded: {type(error).__name__}: {error}. {hint}"
        ) from error
    if not isinstance(provider, SchedulerProvider):
        raise ProviderLoadError(f"{where} is no SchedulerProvider but {type(provider).__qualname__}. {hint}")
    name = getattr(provider, "name", None)
    if name != entry.name:
        raise ProviderLoadError(
            f"{where} calls itself {name!r}; its attribute `name` must equal the entry point's name. {hint}"
        )
    _check_version(provider, where)
    return provider


def _check_version(provider: SchedulerProvider, where: str) -> None:
    declared = provider.seams_api_version
    if declared is None or declared == SEAMS_API_VERSION:
        return
    older = isinstance(declared, int) and declared < SEAMS_API_VERSION
    fix = (
        "a newer release of the provider"
        if older
        else "a newer AstraBox, or an older release of the provider"
    )
    raise ProviderLoadError(
        f"{where} was written for version {declared!r} of the scheduler seam, this AstraBox has version "
        f"{SEAMS_API_VERSION}. Install {fix}, or set {SETTING} to another provider or to none."
    )
