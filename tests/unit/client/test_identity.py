import re

import pytest

from astrabox_scheduler_client.identity import new_identity


@pytest.mark.parametrize("host", ["pod-1", "A.Very_Long." + "x" * 300, "x" * 39 + ".y", "---", "ü", "", None])
@pytest.mark.parametrize("role", ["", "operator"])
def test_an_identity_names_a_lease_whatever_the_host_is_called(role: str, host: str | None) -> None:
    identity = new_identity(role, host)
    assert re.fullmatch(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", identity)
    assert "--" not in identity
    assert len(identity) <= 49
    assert identity.startswith(role)


def test_no_two_lives_share_one() -> None:
    assert new_identity("operator", "a").startswith("operator-a-")
    assert new_identity(host="a") != new_identity(host="a")
