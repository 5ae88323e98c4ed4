"""The CustomResourceDefinitions, generated from the models so that they cannot part from them.

Rules that compare with the old object stand on the root: a rule on `.status` is not evaluated when
a patch sets `status: null`. A run is stored without status (a create drops it); the default makes
it read, and select, as `Queued`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from astrabox_scheduler_crds import labels
from astrabox_scheduler_crds.metadata import KubernetesModel
from astrabox_scheduler_crds.run import FINISHED, Phase, RunInvocation
from astrabox_scheduler_crds.schedule import DeploymentSchedule

APPLY_DEFINITIONS: Final = (
    "install the chart of this release, or upgrade to it, with crds.install=true, or, where the "
    "definitions are not the chart's, run `kubectl apply -f crds/manifests` of this release"
)


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule on the root of an object and what the API server answers when it is broken."""

    rule: str
    message: str

    def to_dict(self) -> dict[str, str]:
        """As it stands in the schema."""
        return {"rule": self.rule, "message": self.message}


@dataclass(frozen=True, slots=True)
class Column:
    """A printer column; `wide` ones only with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    wide: bool = False
    description: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As it stands in the definition."""
        column: dict[str, Any] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        if self.description:
            column["description"] = self.description
        return column | ({"priority": 1} if self.wide else {})


def _set_once(field: str) -> Rule:
    kept = f"has(self.status) && has(self.status.{field}) && self.status.{field} == oldSelf.status.{field}"
    return Rule(
        f"!has(oldSelf.status) || !has(oldSelf.status.{field}) || ({kept})", f"status.{field} is set once"
    )


def _never_less(field: str) -> Rule:
    kept = f"has(self.status) && has(self.status.{field}) && self.status.{field} >= oldSelf.status.{field}"
    return Rule(
        f"!has(oldSelf.status) || !has(oldSelf.status.{field}) || ({kept})", f"status.{field} never goes back"
    )


_FINISHED_LIST = "[" + ", ".join(f"'{phase.value}'" for phase in Phase if phase in FINISHED) + "]"
_OLD_PHASE = "has(oldSelf.status) && has(oldSelf.status.phase)"
_NEW_PHASE = "has(self.status) && has(self.status.phase)"
_SCHEDULED_NAME = "self.metadata.name.matches('-[0-9]{8}t[0-9]{4}z$')"


def _name_says(start: int, end: int, value: str) -> str:
    """That the digits from `start` to `end`, counted from the name's end, are this part of the due time."""
    size = "self.metadata.name.size()"
    return f"int(self.metadata.name.substring({size} - {start}, {size} - {end})) == self.spec.dueTime.{value}"


# The text of a timestamp has no known length, so a rule that compares texts is refused for its cost.
_NAME_IS_DUE_TIME = " && ".join(
    (
        _SCHEDULED_NAME,
        _name_says(14, 10, "getFullYear()"),
        _name_says(10, 8, "getMonth() + 1"),
        _name_says(8, 6, "getDate()"),
        _name_says(5, 3, "getHours()"),
        _name_says(3, 1, "getMinutes()"),
        "self.spec.dueTime.getSeconds() == 0",
    )
)

RUN_RULES = (
    Rule("self.spec == oldSelf.spec", "spec is immutable: create another run"),
    Rule(
        "(self.spec.trigger == 'schedule') == has(self.spec.dueTime)",
        "spec.dueTime goes with trigger schedule and with no other",
    ),
    Rule(
        "(self.spec.trigger == 'replay') == has(self.spec.replayedFrom)",
        "spec.replayedFrom goes with trigger replay and with no other",
    ),
    Rule(
        f"self.spec.trigger != 'schedule' || !has(self.spec.dueTime) || ({_NAME_IS_DUE_TIME})",
        "the name of a scheduled run ends with its due time in UTC, -YYYYMMDDtHHMMz: it keeps the run unique",
    ),
    Rule(
        f"self.spec.trigger == 'schedule' || !{_SCHEDULED_NAME}",
        "a name that ends with -YYYYMMDDtHHMMz is kept for scheduled runs",
    ),
    Rule(
        f"!({_OLD_PHASE}) || !(oldSelf.status.phase in {_FINISHED_LIST}) || "
        f"({_NEW_PHASE} && self.status.phase == oldSelf.status.phase)",
        "a finished run keeps its phase",
    ),
    Rule(
        f"!({_OLD_PHASE}) || oldSelf.status.phase == 'Queued' || "
        f"({_NEW_PHASE} && self.status.phase != 'Queued')",
        "a run that was started is never Queued again",
    ),
    Rule(
        f"!({_NEW_PHASE}) || self.status.phase != 'Succeeded' || "
        "(has(self.status.sessionId) && has(self.status.turnId))",
        "a run has Succeeded only with its sessionId and turnId",
    ),
    _set_once("sessionId"),
    _set_once("turnId"),
    _set_once("commandId"),
    _set_once("startedAt"),
    _never_less("attempts"),
    _never_less("releases"),
    _never_less("failures"),
)

SCHEDULE_RULES = (
    Rule("self.spec.deploymentId == oldSelf.spec.deploymentId", "spec.deploymentId is immutable"),
    Rule(
        "!has(oldSelf.status) || !has(oldSelf.status.lastDueTime) || "
        "(has(self.status) && has(self.status.lastDueTime))",
        "status.lastDueTime is never taken away",
    ),
)

# Names begin with the id, so the id itself is for those that no name can hold.
_DEPLOYMENT = Column("Deployment", ".spec.deploymentId", wide=True, description="Id as AstraBox wrote it")
_AGE = Column("Age", ".metadata.creationTimestamp", "date")

SCHEDULE_COLUMNS = (
    Column("Cron", ".spec.cron"),
    Column("Zone", ".spec.timeZone"),
    Column("Enabled", ".spec.enabled", "boolean"),
    Column("Last due", ".status.lastDueTime", description="Latest due time that has its run, UTC"),
    Column("Next due", ".status.nextDueTime", description="Next due time, UTC; empty while disabled"),
    Column("Ready", ".status.conditions[?(@.type=='Ready')].status"),
    Column("Reason", ".status.conditions[?(@.type=='Ready')].reason", description="Why it is ready or not"),
    _DEPLOYMENT,
    Column(
        "Skipped", ".status.skipped.count", "integer", description="Due times without a run; empty for none"
    ),
    Column("Last skipped", ".status.skipped.lastDueTime", wide=True),
    Column("Why skipped", ".status.skipped.reason", wide=True),
    Column("Last run", ".status.lastRun", wide=True),
    _AGE,
)

RUN_COLUMNS = (
    Column("Trigger", ".spec.trigger"),
    Column("Phase", ".status.phase"),
    Column(
        "Reason",
        ".status.conditions[?(@.type=='Finished')].reason",
        description="How it ended; empty until then",
    ),
    Column("Due", ".spec.dueTime", description="Due time, UTC; empty for manual and replay"),
    Column("Session", ".status.sessionId"),
    Column("Attempts", ".status.attempts", "integer"),
    _DEPLOYMENT,
    Column("Started", ".status.startedAt", wide=True, description="First attempt, UTC; empty until then"),
    Column("Turn", ".status.turnId", wide=True),
    Column("Assignee", f".metadata.labels.{labels.GROUP.replace('.', chr(92) + '.')}/assignee", wide=True),
    Column("Next attempt", ".status.nextAttemptTime", wide=True),
    Column("Error", ".status.lastError", wide=True),
    _AGE,
)

SCHEDULE_SELECTABLE = (".spec.deploymentId", ".spec.enabled")
RUN_SELECTABLE = (".spec.deploymentId", ".spec.trigger", ".status.phase")


def schedule_crd() -> dict[str, Any]:
    """The definition of DeploymentSchedule."""
    names = {"kind": labels.SCHEDULE_KIND, "plural": labels.SCHEDULE_PLURAL, "short": labels.SCHEDULE_SHORT}
    schema = _root_schema(DeploymentSchedule, SCHEDULE_RULES)
    return _crd(names, schema, SCHEDULE_COLUMNS, SCHEDULE_SELECTABLE)


def run_crd() -> dict[str, Any]:
    """The definition of RunInvocation."""
    names = {"kind": labels.RUN_KIND, "plural": labels.RUN_PLURAL, "short": labels.RUN_SHORT}
    schema = _root_schema(RunInvocation, RUN_RULES)
    schema["properties"]["status"]["default"] = {"phase": Phase.QUEUED.value}
    return _crd(names, schema, RUN_COLUMNS, RUN_SELECTABLE)


def field_paths(schema: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """The paths of all fields of a structural schema below spec and status, as `spec.cron`."""
    for name, child in schema.get("properties", {}).items():
        if not prefix and name not in ("spec", "status"):
            continue
        path = f"{prefix}.{name}" if prefix else name
        yield path
        yield from field_paths(child, path)
        yield from field_paths(child.get("items", {}), f"{path}[]")


@dataclass(frozen=True, slots=True)
class Lacking:
    """A definition of ours that an API server does not serve, or only without these fields."""

    name: str
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        """What is wrong and what to do."""
        wrong = f"is older and lacks {', '.join(self.fields)}" if self.fields else "is not installed"
        return f"the CustomResourceDefinition {self.name} {wrong}: {APPLY_DEFINITIONS}"


def lacking_fields(document: Mapping[str, Any] | None) -> tuple[Lacking, ...]:
    """What is lacking in the OpenAPI v3 document of our group and version; None: nothing of it is served."""
    schemas = (document or {}).get("components", {}).get("schemas", {}).values()
    found = []
    for wanted in (schedule_crd(), run_crd()):
        name, kind = wanted["metadata"]["name"], wanted["spec"]["names"]["kind"]
        served = next((schema for schema in schemas if _is_of(schema, kind)), None)
        fields = set(field_paths(wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
        if served is None:
            found.append(Lacking(name))
        elif lacking := sorted(fields - set(field_paths(served))):
            found.append(Lacking(name, tuple(lacking)))
    return tuple(found)


def _is_of(schema: Mapping[str, Any], kind: str) -> bool:
    marks = schema.get("x-kubernetes-group-version-kind", ())
    ours = (labels.GROUP, labels.VERSION, kind)
    return any((mark.get("group"), mark.get("version"), mark.get("kind")) == ours for mark in marks)


def _crd(
    names: Mapping[str, str], schema: dict[str, Any], columns: tuple[Column, ...], selectable: tuple[str, ...]
) -> dict[str, Any]:
    version = {
        "name": labels.VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "selectableFields": [{"jsonPath": path} for path in selectable],
        "additionalPrinterColumns": [column.to_dict() for column in columns],
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{labels.GROUP}"},
        "spec": {
            "group": labels.GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": names["kind"],
                "listKind": f"{names['kind']}List",
                "plural": names["plural"],
                "singular": names["kind"].lower(),
                "shortNames": [names["short"]],
                "categories": [labels.CATEGORY],
            },
            "versions": [version],
        },
    }


def _root_schema(model: type[KubernetesModel], rules: tuple[Rule, ...]) -> dict[str, Any]:
    raw = model.model_json_schema(by_alias=True, mode="validation")
    schema = _structural(raw, raw.get("$defs", {}))
    # The length that every name has anyway lets the API server see what a rule on it can cost.
    schema["properties"]["metadata"] = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 253}},
    }
    for name in ("apiVersion", "kind"):
        schema["properties"][name] = {"type": "string"}
    schema["required"] = ["spec"]
    schema["x-kubernetes-validations"] = [rule.to_dict() for rule in rules]
    return schema


_KEPT = ("type", "format", "description", "enum", "maxLength", "minimum", "pattern", "default")


def _structural(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """JSON Schema as pydantic writes it, as a structural schema: references inlined, no null alternatives."""
    schema = _resolved(schema, defs)
    result = {key: schema[key] for key in _KEPT if schema.get(key) is not None and schema.get(key) != []}
    if "const" in schema:
        result["enum"] = [schema["const"]]
    if isinstance(result.get("default"), dict):
        del result["default"]
    if "properties" in schema:
        result["properties"] = {
            name: _structural(child, defs) for name, child in schema["properties"].items()
        }
        if schema.get("required"):
            result["required"] = list(schema["required"])
    if schema.get("type") == "array":
        result["items"] = _structural(schema["items"], defs)
        if "maxItems" in schema:
            result |= {"maxItems": schema["maxItems"], "x-kubernetes-list-type": "atomic"}
        else:  # conditions
            result |= {
                "maxItems": 16,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            }
    if schema.get("type") == "integer":
        result["format"] = "int64"
    return result


def _resolved(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(schema)
    alternatives = [each for each in merged.pop("anyOf", ()) if each.get("type") != "null"]
    if len(alternatives) == 1:
        merged = _resolved(alternatives[0], defs) | merged
    elif alternatives:
        raise TypeError(f"a structural schema has no alternatives: {schema}")
    reference = merged.pop("$ref", None)
    if reference is not None:
        merged = _resolved(defs[reference.rsplit("/", 1)[-1]], defs) | merged
    return merged
