"""Admission webhooks that the tests put up on a real API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def away(name: str, namespace: str, rule: Mapping[str, Any]) -> dict[str, Any]:
    """One that does not answer: what `rule` matches in the namespace fails with 500."""
    return {
        "name": name,
        "clientConfig": {"url": "https://127.0.0.1:1/away"},
        "failurePolicy": "Fail",
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
        "rules": [rule],
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
    }
