"""The settings that both sides have."""

import pytest
from pydantic import ValidationError

from astrabox_scheduler_client.connect import ConnectSettings
from astrabox_scheduler_client.settings import CONNECTION_FIELDS, ConnectionSettings
from astrabox_scheduler_kubernetes.settings import Settings as ProviderSettings
from astrabox_scheduler_operator.settings import Settings as OperatorSettings

SIDES = [ProviderSettings, OperatorSettings]


@pytest.mark.parametrize("side", SIDES)
def test_both_sides_say_in_the_same_way_which_cluster_is_meant(side: type[ConnectionSettings]) -> None:
    settings = side(namespace="n", kubeconfig="/k", context="c")
    assert settings.connect == ConnectSettings(kubeconfig="/k", context="c")
    for wrong in ("Not_One", "-n", "x" * 64):
        with pytest.raises(ValidationError):
            side(namespace=wrong)
    assert side(namespace="x" * 63).namespace == "x" * 63


def test_each_side_describes_them_in_its_own_words() -> None:
    """And leaves those of the other alone."""
    words = [
        [model.model_fields[name].description for name in sorted(CONNECTION_FIELDS)]
        for model in (ConnectionSettings, ProviderSettings, OperatorSettings)
    ]
    assert words[0] == words[1]
    assert all(own != base for own, base in zip(words[2], words[0], strict=True))
