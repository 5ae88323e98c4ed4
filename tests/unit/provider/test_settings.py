import pytest

from astrabox_scheduler_client.environment import SettingsError
from astrabox_scheduler_kubernetes.settings import PREFIX, Settings


def read(**values: str) -> Settings:
    return Settings.from_environment({PREFIX + name: value for name, value in values.items()})


def test_defaults() -> None:
    settings = Settings.from_environment({"PATH": "/bin", f"{PREFIX}CONCURRENCY": "  "})
    assert (settings.concurrency, settings.max_attempts, settings.max_active_schedules) == (50, 8, None)
    assert settings.retry_policy.first_delay == 2.0


def test_every_variable_is_described_with_its_unit_or_default() -> None:
    for name, field in Settings.model_fields.items():
        assert field.description, name
        assert ("Seconds" in field.description) == name.endswith("_seconds")


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        read(
            CONCURRENCY="0", MAX_ATTEMPTS="x", STOP_TIMEOUT_SECONDS="-1", CONCURENCY="3", NAMESPACE="Not_One"
        )
    told = caught.value.problems
    for name in (
        "CONCURRENCY='0'",
        "MAX_ATTEMPTS='x'",
        "STOP_TIMEOUT_SECONDS='-1'",
        "CONCURENCY ",
        "NAMESPACE='Not",
    ):
        assert any(PREFIX + name in each for each in told), name
    assert caught.value.usable is None, "a typo may have been meant for the namespace"


def test_wrong_numbers_leave_the_cluster_to_be_checked() -> None:
    with pytest.raises(SettingsError) as caught:
        read(CONCURRENCY="many", NAMESPACE="n")
    assert caught.value.usable is not None
    assert caught.value.usable.namespace == "n"


def test_a_service_of_our_name_is_no_mistake() -> None:
    """Kubernetes adds these to every pod of the namespace."""
    added = {"SERVICE_HOST": "10.0.0.7", "SERVICE_PORT_HTTP": "80", "PORT": "tcp://10.0.0.7:80"}
    assert read(**added, PORT_80_TCP_ADDR="10.0.0.7") == Settings()


def test_lower_case_variables_are_typos() -> None:
    with pytest.raises(SettingsError, match="not known"):
        Settings.from_environment({f"{PREFIX}concurrency": "3"})


def test_first_delay_is_not_larger_than_the_longest() -> None:
    with pytest.raises(SettingsError, match="is larger than"):
        read(RETRY_FIRST_DELAY_SECONDS="400")
