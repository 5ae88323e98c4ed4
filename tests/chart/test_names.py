"""Names that the chart gives: they fit, differ where they have to, and are texts whatever they look like."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.chart.helm import ALL_ON, POD_MONITOR, Helm, identities

pytestmark = pytest.mark.chart


def test_names_in_two_namespaces_and_of_a_long_release_differ_and_fit(helm: Helm) -> None:
    long = helm.render(ALL_ON, release="r" * 53)
    for item in long:
        name = item["metadata"]["name"]
        assert len(name) <= 63 or item["kind"] in {"CustomResourceDefinition", "FlowSchema", "ClusterRole"}
    cluster_wide = {"ClusterRole", "FlowSchema", "PriorityLevelConfiguration"}
    one, two = (
        {each for each in identities(helm.render(ALL_ON, namespace=space)) if each[0] in cluster_wide}
        for space in ("one", "two")
    )
    assert not one & two
    assert ("Deployment", "mine-astrabox-scheduler-operator") in identities(helm.render(release="mine"))
    assert ("Deployment", "given-operator") in identities(helm.render({"fullnameOverride": "given"}))


def texts(value: object) -> Iterator[object]:
    """Every name, namespace and label in an object."""
    if isinstance(value, dict):
        for key, member in value.items():
            if key in {"name", "namespace", "serviceAccountName", "priorityClassName"}:
                yield member
            elif key in {"labels", "matchLabels"} and isinstance(member, dict):
                yield from member.values()
            yield from texts(member)
    elif isinstance(value, list):
        for member in value:
            yield from texts(member)


@pytest.mark.parametrize("word", ["2024", "null", "true", "0x1f"])
def test_names_that_yaml_takes_for_something_else_stay_texts(helm: Helm, word: str) -> None:
    values = {
        **ALL_ON,
        "nameOverride": word,
        "priorityClassName": word,
        "serviceAccount": {"create": False, "name": word},
        "astrabox": {"serviceAccounts": [{"name": word, "namespace": word}]},
        "flowSchema": {"enabled": True, "priorityLevel": word},
    }
    for objects in (
        helm.render(values, release=word, namespace=word),
        helm.render({**POD_MONITOR, "fullnameOverride": word}, release=word, namespace=word),
    ):
        found = [
            text for item in objects if item["kind"] != "CustomResourceDefinition" for text in texts(item)
        ]
        assert word in found
        assert not [text for text in found if not isinstance(text, str | dict)]
        spaces = {item["metadata"].get("namespace", word) for item in objects}
        assert spaces == {word}
