"""What the README shows is accepted by a real API server."""

import re
from pathlib import Path

from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.payload import decode_payload
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from tools.controlplane import Cluster

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_schedule_is_stored_and_has_the_name_it_must_have(
    control_plane: Cluster, crds_installed: None, namespace: str
) -> None:
    (sample,) = SAMPLES
    text = sample.replace("namespace: astrabox", f"namespace: {namespace}")
    control_plane.kubectl("apply", "-f", "-", input=text)
    stored = control_plane.kubectl("-n", namespace, "get", "dsched", "nightly-report", "-o", "json")
    schedule = DeploymentSchedule.from_json(stored)
    assert schedule.metadata.name == deployment_key(schedule.spec.deployment_id)
    assert decode_payload(schedule.spec.payload)["agent"] == "reporter"
