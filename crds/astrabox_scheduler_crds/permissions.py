"""The rights that each side needs in its namespace: nothing more is asked for, nothing more is used.

The preflight checks, the generated Roles and their tests all read these tables.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from astrabox_scheduler_crds import labels

_LEASES = "coordination.k8s.io"


@dataclass(frozen=True, slots=True, order=True)
class Permission:
    """One verb on one namespaced resource; `resource` may name a subresource after a slash."""

    group: str
    resource: str
    verb: str

    def __str__(self) -> str:
        """As a person would say it: `patch runinvocations/status.scheduler.astrabox.io`."""
        return f"{self.verb} {self.resource}.{self.group}" if self.group else f"{self.verb} {self.resource}"


def by_resource(permissions: Iterable[Permission]) -> list[str]:
    """One text for each resource, in their order: `get, list runinvocations.scheduler.astrabox.io`."""
    verbs: dict[str, list[str]] = {}
    for each in permissions:
        verb, _, resource = str(each).partition(" ")
        verbs.setdefault(resource, []).append(verb)
    return [f"{', '.join(found)} {resource}" for resource, found in verbs.items()]


def _permissions(group: str, resource: str, verbs: str) -> tuple[Permission, ...]:
    return tuple(Permission(group, resource, verb) for verb in verbs.split())


PROVIDER_PERMISSIONS = (
    *_permissions(labels.GROUP, labels.SCHEDULE_PLURAL, "create delete get list patch"),
    *_permissions(labels.GROUP, labels.RUN_PLURAL, "create get list patch watch"),
    *_permissions(labels.GROUP, f"{labels.RUN_PLURAL}/status", "patch"),
    *_permissions(_LEASES, "leases", "create get list update"),
)

OPERATOR_PERMISSIONS = (
    *_permissions(labels.GROUP, labels.SCHEDULE_PLURAL, "delete get list watch"),
    *_permissions(labels.GROUP, f"{labels.SCHEDULE_PLURAL}/status", "patch"),
    *_permissions(labels.GROUP, labels.RUN_PLURAL, "create delete get list"),
    *_permissions(labels.GROUP, f"{labels.RUN_PLURAL}/status", "patch"),
    *_permissions(_LEASES, "leases", "create delete get list update"),
    *_permissions("events.k8s.io", "events", "create"),
)


def role_rules(permissions: Iterable[Permission]) -> list[dict[str, Any]]:
    """The same as the rules of a Role, one per resource."""
    verbs: dict[tuple[str, str], list[str]] = {}
    for permission in permissions:
        verbs.setdefault((permission.group, permission.resource), []).append(permission.verb)
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": sorted(granted)}
        for (group, resource), granted in sorted(verbs.items())
    ]
