"""Our CustomResourceDefinitions in a cluster of the tests."""

from __future__ import annotations

import contextlib
import json
import time

from astrabox_scheduler_crds.crd import lacking_fields
from astrabox_scheduler_crds.labels import API_VERSION, RUN_PLURAL, SCHEDULE_PLURAL
from tools.controlplane import Cluster, KubectlError
from tools.generated.paths import ROOT

MANIFESTS = ROOT / "crds" / "manifests"


def install_definitions(cluster: Cluster) -> None:
    """Install them; returns when they are served with all fields. Raises TimeoutError after 30 s.

    Served at once, published a moment later; what checks the fields reads what is published. Until its
    cache is filled the API server answers 429 to lists, "storage is (re)initializing".
    """
    cluster.kubectl("apply", "-f", str(MANIFESTS))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "-f", str(MANIFESTS))
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with contextlib.suppress(KubectlError):
            document = json.loads(cluster.kubectl("get", "--raw", f"/openapi/v3/apis/{API_VERSION}"))
            for plural in (SCHEDULE_PLURAL, RUN_PLURAL):
                cluster.kubectl("get", "--raw", f"/apis/{API_VERSION}/{plural}?limit=1")
            if not lacking_fields(document):
                return
        time.sleep(0.1)
    raise TimeoutError("the API server does not serve our CRDs with all fields within 30 s")
