"""What AstraBox says at start-up about the provider that it was told to take."""

from collections.abc import Callable
from pathlib import Path

import pytest

from astrabox.loader import SETTING, ProviderLoadError, load_provider
from astrabox.seams.scheduler import SEAMS_API_VERSION, SchedulerConfigurationError

Declare = Callable[..., Path]

ABSTRACT = """
from astrabox.seams.scheduler import SchedulerProvider

class Provider(SchedulerProvider):
    name = "example"
"""


def load(name: str) -> object:
    return load_provider({SETTING: name})


def test_none_means_no_provider() -> None:
    assert load("none") is None


def test_provider_is_instantiated_by_its_entry_point(declare: Declare) -> None:
    declare("example")
    provider = load_provider({SETTING: " example "})
    assert provider is not None
    assert provider.name == "example"


def test_environment_of_the_process_is_the_default(declare: Declare, monkeypatch: pytest.MonkeyPatch) -> None:
    declare("example")
    monkeypatch.setenv(SETTING, "example")
    provider = load_provider()
    assert provider is not None
    assert provider.name == "example"


@pytest.mark.parametrize("environ", [{}, {SETTING: ""}, {SETTING: "dbos"}])
def test_built_in_provider_is_not_in_the_stand_in(environ: dict[str, str]) -> None:
    with pytest.raises(ProviderLoadError, match=r"built-in provider 'dbos' is not part of this stand-in"):
        load_provider(environ)


def test_unknown_provider_is_named_with_the_installed_ones(declare: Declare) -> None:
    declare("example")
    with pytest.raises(ProviderLoadError, match=rf"'other' is installed \(.*example.*{SETTING}=none"):
        load("other")


@pytest.mark.parametrize("declared", ["None", "SEAMS_API_VERSION"])
def test_compatible_version_is_loaded(declare: Declare, declared: str) -> None:
    extra = f"    from astrabox.seams.scheduler import SEAMS_API_VERSION\n    seams_api_version = {declared}"
    declare("example", extra=extra)
    assert load("example")


@pytest.mark.parametrize(
    ("declared", "advice"),
    [
        (SEAMS_API_VERSION - 1, "Install a newer release of the provider"),
        (SEAMS_API_VERSION + 1, "Install a newer AstraBox"),
        ("'2'", "Install a newer AstraBox"),
    ],
)
def test_incompatible_version_is_refused(declare: Declare, declared: object, advice: str) -> None:
    declare("example", extra=f"    seams_api_version = {declared}")
    with pytest.raises(ProviderLoadError, match=rf"written for version .* {advice}"):
        load("example")


def test_name_must_be_that_of_the_entry_point(declare: Declare) -> None:
    declare("example", calls_itself="sample")
    with pytest.raises(ProviderLoadError, match="calls itself 'sample'"):
        load("example")


def test_class_must_be_a_provider(declare: Declare) -> None:
    declare("example", source="class Provider:\n    name = 'example'\n")
    with pytest.raises(ProviderLoadError, match="is no SchedulerProvider but Provider"):
        load("example")


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import module_that_is_not_there\n", "ModuleNotFoundError"),
        ("", "AttributeError"),
        (ABSTRACT, "TypeError: Can't instantiate abstract class Provider"),
    ],
)
def test_broken_provider_is_refused_with_the_reason(declare: Declare, source: str, reason: str) -> None:
    declare("example", source=source)
    with pytest.raises(SchedulerConfigurationError, match=f"cannot be loaded: {reason}"):
        load("example")


def test_two_distributions_with_one_name_are_refused(declare: Declare) -> None:
    declare("example", distribution="one")
    declare("example", distribution="two")
    with pytest.raises(ProviderLoadError, match=r"several distributions declare .* Uninstall all but one"):
        load("example")
