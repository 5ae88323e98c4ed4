"""What an API server serves of our definitions, compared field by field."""

from typing import Any

from astrabox_scheduler_crds.crd import Lacking, lacking_fields, run_crd, schedule_crd
from astrabox_scheduler_crds.labels import GROUP, VERSION

SCHEDULES, RUNS = f"deploymentschedules.{GROUP}", f"runinvocations.{GROUP}"


def published(version: str = VERSION) -> dict[str, Any]:
    schemas = {}
    for crd in (schedule_crd(), run_crd()):
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        kind = crd["spec"]["names"]["kind"]
        mark = {"group": GROUP, "version": version, "kind": kind}
        schemas[kind] = schema | {"x-kubernetes-group-version-kind": [mark]}
        schemas[f"{kind}List"] = {"x-kubernetes-group-version-kind": [mark | {"kind": f"{kind}List"}]}
    return {"components": {"schemas": schemas | {"DeleteOptions": {}}}}


def test_nothing_is_lacking_in_our_own_definitions() -> None:
    assert lacking_fields(published()) == ()


def test_what_is_not_served_is_named() -> None:
    both = (Lacking(SCHEDULES), Lacking(RUNS))
    assert lacking_fields(None) == both
    assert lacking_fields({}) == both
    assert lacking_fields(published("v2")) == both


def test_a_definition_that_is_older_is_named_with_what_it_lacks() -> None:
    """IN-01: the new release under the old definitions."""
    document = published()
    schemas = document["components"]["schemas"]
    del schemas["RunInvocation"]["properties"]["status"]["properties"]["releases"]
    del schemas["RunInvocation"]["properties"]["spec"]["properties"]["createdBy"]["properties"]["at"]
    (lacking,) = lacking_fields(document)
    assert lacking == Lacking(RUNS, ("spec.createdBy.at", "status.releases"))
    assert str(lacking) == (
        f"the CustomResourceDefinition {RUNS} is older and lacks spec.createdBy.at, status.releases: "
        "install the chart of this release, or upgrade to it, with crds.install=true, or, where the "
        "definitions are not the chart's, run `kubectl apply -f crds/manifests` of this release"
    )


def test_a_definition_without_earlier_rules_is_older() -> None:
    """Where the API server would drop them, no schedule is written and nothing is fired."""
    document = published()
    spec = document["components"]["schemas"]["DeploymentSchedule"]["properties"]["spec"]["properties"]
    del spec["earlierRules"]["items"]["properties"]["disabled"]
    assert lacking_fields(document) == (Lacking(SCHEDULES, ("spec.earlierRules[].disabled",)),)
    del spec["earlierRules"]
    (lacking,) = lacking_fields(document)
    assert "spec.earlierRules" in lacking.fields


def test_a_definition_of_a_later_release_lacks_nothing() -> None:
    document = published()
    properties = document["components"]["schemas"]["DeploymentSchedule"]["properties"]["spec"]["properties"]
    properties["later"] = {"type": "string"}
    assert lacking_fields(document) == ()
