"""What the README shows is accepted by a real API server."""

import re
from pathlib import Path

import yaml

from astrabox_scheduler_crds.names import deployment_key
from astrabox_scheduler_crds.payload import decode_payload
from astrabox_scheduler_crds.schedule import DeploymentSchedule
from tools.controlplane import Cluster

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def samples(kind: str) -> list[str]:
    cleaned = [re.sub(r"^   ", "", sample, flags=re.MULTILINE) for sample in SAMPLES]
    return [each for each in cleaned if yaml.safe_load(each)["kind"] == kind]


def test_the_schedule_is_stored_and_has_the_name_it_must_have(
    control_plane: Cluster, crds_installed: None, namespace: str
) -> None:
    (text,) = samples("DeploymentSchedule")
    text = text.replace("namespace: astrabox", f"namespace: {namespace}")
    control_plane.kubectl("apply", "-f", "-", input=text)
    stored = control_plane.kubectl("-n", namespace, "get", "dsched", "nightly-report", "-o", "json")
    schedule = DeploymentSchedule.from_json(stored)
    assert schedule.metadata.name == deployment_key(schedule.spec.deployment_id)
    assert decode_payload(schedule.spec.payload)["agent"] == "reporter"


def test_the_operators_deployment_and_the_rights_are_accepted(control_plane: Cluster, namespace: str) -> None:
    (text,) = samples("Deployment")
    text = text.replace("namespace: astrabox}", f"namespace: {namespace}}}")
    control_plane.kubectl("apply", "--dry-run=server", "-f", "-", input=text)
    control_plane.kubectl("-n", namespace, "apply", "-f", str(ROOT / "deploy"))
    account = yaml.safe_load(text)["spec"]["template"]["spec"]["serviceAccountName"]
    control_plane.kubectl("-n", namespace, "get", "serviceaccount", account)
