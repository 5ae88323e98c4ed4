"""Settings from environment variables, as both sides read them."""

from typing import Literal

import pytest
from pydantic import BaseModel, Field

from astrabox_scheduler_client.environment import SettingsError, accepted, read_settings


class Example(BaseModel):
    health_port: int = Field(default=8080, ge=0, le=65_535, description="Port of the health.")
    name: str | None = Field(default=None, max_length=5, description="A short name.")
    service_host: str | None = Field(default=None, description="Named as what Kubernetes adds.")


SERVICE = {
    "SERVICE_HOST": "10.0.0.7",
    "SERVICE_PORT": "8080",
    "SERVICE_PORT_HTTP_METRICS": "8080",
    "PORT": "tcp://10.0.0.7:8080",
    "PORT_8080_TCP": "tcp://10.0.0.7:8080",
    "PORT_8080_TCP_PROTO": "tcp",
    "PORT_8080_TCP_PORT": "8080",
    "PORT_8080_TCP_ADDR": "10.0.0.7",
    "PORT_53_UDP": "udp://[fd00::7]:53",
    "PORT_53_UDP_ADDR": "fd00::7",
    "PORT_9_SCTP_PROTO": "sctp",
}


def read(**values: str) -> Example:
    return read_settings(Example, "OURS_", {f"OURS_{name}": text for name, text in values.items()})


def test_values_are_stripped_and_empty_ones_are_absent() -> None:
    assert read(HEALTH_PORT=" 81 ", NAME="  ") == Example(health_port=81)
    assert read_settings(Example, "OURS_", {"PATH": "/bin", "OTHER_NAME": "n"}) == Example()


def test_all_mistakes_are_told_at_once_with_what_each_field_is() -> None:
    with pytest.raises(SettingsError) as caught:
        read(HEALTH_PORT="many", NAME="x" * 500, NAM="n")
    unknown, port, name = caught.value.problems
    assert unknown == "OURS_NAM is not known: did you mean OURS_NAME? All of them: docs/settings.md"
    assert port == "OURS_HEALTH_PORT='many' is not a whole number from 0 to 65535: Port of the health."
    assert name.startswith("OURS_NAME='xxx")
    assert name.endswith(" is not a text of at most 5 characters: A short name.")
    assert len(name) < 250
    assert str(caught.value) == "; ".join(caught.value.problems)
    assert (caught.value.usable, caught.value.in_doubt) == (Example(), frozenset(Example.model_fields))


class Bounds(BaseModel):
    pause_seconds: float = Field(default=1.0, gt=0, le=60)
    window_seconds: int = Field(default=60, ge=30, le=3600)
    most: int | None = Field(default=None, ge=1)
    style: Literal["json", "text"] = "json"
    place: str | None = Field(default=None, pattern="^[a-z]+$", title="a place (small letters)")
    path: str = Field(default="/", min_length=1)


def test_what_is_accepted_is_told_in_words() -> None:
    assert [accepted(Bounds, name) for name in Bounds.model_fields] == [
        "a number of seconds above 0, up to 60",
        "a whole number of seconds from 30 to 3600",
        "a whole number from 1 on",
        "json or text",
        "a place (small letters)",
        "any text",
    ]


def test_a_name_like_no_other_is_to_be_removed() -> None:
    with pytest.raises(SettingsError, match=r"OURS_XYZZY is not known: remove it\. All"):
        read(XYZZY="1")
    with pytest.raises(SettingsError, match="did you mean OURS_HEALTH_PORT"):
        read(health_port="1")


def test_a_wrong_value_leaves_no_doubt_about_the_others() -> None:
    with pytest.raises(SettingsError) as caught:
        read(HEALTH_PORT="-1", NAME="n")
    assert (caught.value.usable, caught.value.in_doubt) == (Example(name="n"), frozenset({"health_port"}))


@pytest.mark.parametrize("before", ["", "HEALTH_", "A_9_"])
def test_what_kubernetes_adds_for_a_service_of_our_name_is_no_setting(before: str) -> None:
    """A Service `ours`, or `ours-health`, in the namespace of the pod."""
    added = {before + name: text for name, text in SERVICE.items() if before + name != "SERVICE_HOST"}
    assert read(**added, NAME="n") == Example(name="n")


def test_a_link_to_a_service_stands_in_its_port_only() -> None:
    with pytest.raises(SettingsError, match="OURS_NAM is not known"):
        read(NAM="tcp://a:1")
    with pytest.raises(SettingsError, match="OURS_NAME='tcp"):
        read(NAME="tcp://a:1")


def test_a_field_that_is_named_like_it_is_read() -> None:
    assert read(SERVICE_HOST="10.0.0.7", SERVICE_PORT="8080").service_host == "10.0.0.7"
    assert read(HEALTH_PORT="9090").health_port == 9090


@pytest.mark.parametrize(
    "name",
    [
        "PORT",
        "HEALT_PORT",
        "SERVICE",
        "SERVICE_HOSTS",
        "PORT_TCP",
        "PORT_X_TCP",
        "PORT_1_TCP_X",
        "health_port",
    ],
)
def test_typos_are_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"OURS_{name} is not known"):
        read(**{name: "8080"})
