"""A key that is left empty, which Helm takes for one to be deleted before the schema sees it.

It is refused by its name, or makes no difference where the default is empty as well: never is it an error of
a template, or a switch that is off.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.chart.helm import ALL_ON, POD_MONITOR, Helm, HelmError, as_dependency, named
from tests.chart.test_values import DEFAULTS
from tools.generated.chart import CHART

pytestmark = pytest.mark.chart

AT_PLEASURE = (
    ("resources",),
    ("tests", "resources"),
    ("metrics", "dashboard", "labels"),
)
"""Maps that are rendered as they are: a member that is left empty there is taken out, on purpose."""
KeyPath = tuple[str, ...]


def keys(values: Mapping[str, Any], path: KeyPath = ()) -> Iterator[KeyPath]:
    """Each key, of groups too."""
    for name, value in values.items():
        yield (*path, name)
        if isinstance(value, dict):
            yield from keys(value, (*path, name))


def at_pleasure(path: KeyPath) -> bool:
    return any(path[: len(each)] == each and path != each for each in AT_PLEASURE)


def default(path: KeyPath) -> Any:
    value: Any = DEFAULTS
    for name in path:
        value = value[name]
    return value


NAMED = [path for path in keys(DEFAULTS) if not at_pleasure(path)]
EMPTY = [path for path in NAMED if default(path) in ("", [], {})]
FULL = [path for path in NAMED if path not in EMPTY]


def around(path: KeyPath) -> dict[str, Any]:
    """Values with which nearly all is rendered, so that each key is read."""
    return copy.deepcopy(dict(POD_MONITOR if path[:2] == ("metrics", "podMonitor") else ALL_ON))


def emptied(values: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    """The same, the key left empty."""
    place = values
    for name in path[:-1]:
        place = place.setdefault(name, {})
    place[path[-1]] = None
    return values


def without(values: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    """The same, the key not written."""
    place: Any = values
    for name in path[:-1]:
        place = place.get(name, {})
    place.pop(path[-1], None)
    return values


@pytest.mark.parametrize("path", FULL, ids=".".join)
def test_an_empty_key_is_refused_by_its_name(helm: Helm, path: KeyPath) -> None:
    group = "/".join(("", *path[:-1]))
    with pytest.raises(HelmError) as refusal:
        helm.render(emptied(around(path), path))
    assert f"at '{group}': missing property '{path[-1]}'" in str(refusal.value)


@pytest.mark.parametrize("path", EMPTY, ids=".".join)
def test_an_empty_key_is_as_if_not_written_where_the_default_is_empty(helm: Helm, path: KeyPath) -> None:
    assert helm.render(emptied(around(path), path)) == helm.render(without(around(path), path))


@pytest.mark.parametrize("path", [("crds",), ("crds", "install"), ("crds", "keep")], ids=".".join)
def test_crds_are_not_given_away_by_an_empty_key(helm: Helm, tmp_path: Path, path: KeyPath) -> None:
    """They, and all schedules and runs, are gone with the release if they are not kept."""
    values = emptied({}, path)
    for given, chart in ((values, CHART), ({CHART.name: values}, as_dependency(tmp_path))):
        with pytest.raises(HelmError, match="missing property"):
            helm.render(given, chart=chart)


def test_crds_are_kept_although_the_schema_is_left_out(helm: Helm) -> None:
    rendered = helm.render({"crds": {"keep": None}}, "--skip-schema-validation")
    crds = [each["metadata"] for each in rendered if each["kind"] == "CustomResourceDefinition"]
    assert [each["annotations"]["helm.sh/resource-policy"] for each in crds] == ["keep"] * 2


@pytest.mark.parametrize("name", ["requests", "limits"])
def test_a_limit_is_taken_out_by_leaving_it_empty(helm: Helm, name: str) -> None:
    """There is no other way: Helm adds what is given to what is there."""
    wanted = {key: value for key, value in DEFAULTS["resources"].items() if key != name}
    deployment = named(helm.render({"resources": {name: None}}), "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == wanted
